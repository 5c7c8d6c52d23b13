"""A model as OpenVINO reads and compiles it."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final
from xml.parsers import expat

from naiad.backends.openvino.failures import reason
from naiad.backends.openvino.settings import CACHE_DIR, CPU
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from naiad.backends.openvino.settings import OpenVinoSettings

log = logging.getLogger("naiad")

# The versions of IR that OpenVINO has a reader for. For others it only says that no reader knows the file.
_VERSIONS: Final = ("10", "11")
_NO_READER: Final = "Unable to read the model"
_EXTERNAL: Final = re.compile(r"externally stored data in file \(([^,]+),")


def make_core(model: str, settings: OpenVinoSettings) -> Any:
    """OpenVINO's entry, one for each model: it loads the plugin of a device when a model is compiled for it.

    Raises:
        ModelLoadError: the library of CPU_EXTENSION_PATH cannot be loaded.
    """
    import openvino

    core = openvino.Core()
    if settings.extension:
        try:
            core.add_extension(settings.extension)
        except RuntimeError as error:
            raise ModelLoadError(
                f"model '{model}': the library of CPU_EXTENSION_PATH, {settings.extension}, cannot be loaded: "
                f"{reason(error)}"
            ) from error
    return core


def read_model(core: Any, model: str, file: Path) -> Any:
    """The ``openvino.Model`` in ``file``, read by the framework's own reader of its format.

    Raises:
        ModelLoadError: it cannot be read; the text has the file, OpenVINO's reason and a remedy.
    """
    try:
        return core.read_model(str(file))
    except Exception as error:
        raise ModelLoadError(f"model '{model}': openvino cannot read {file}: {_problem(file, error)}") from error


def compile_model(core: Any, name: str, model: Any, settings: OpenVinoSettings) -> Any:
    """The compiled model for the device, from the cache folder if it is there.

    Raises:
        ModelLoadError: the device is not there, or cannot run the model.
    """
    _check_device(core, name, settings.device)
    properties = dict(settings.properties)
    if settings.cache_folder:
        properties[CACHE_DIR] = settings.cache_folder
    try:
        compiled = core.compile_model(model, settings.device, properties)
    except Exception as error:
        raise ModelLoadError(
            f"model '{name}': openvino cannot compile it for the device {settings.device}: {reason(error)}"
        ) from error
    if settings.cache_folder and compiled.get_property("LOADED_FROM_CACHE"):
        log.debug("model '%s': the compiled model was in %s", name, settings.cache_folder)
    return compiled


def _check_device(core: Any, model: str, device: str) -> None:
    # The list of devices loads the plugins of all of them, and drivers of GPUs with these.
    if device == CPU:
        return
    found = core.available_devices
    wanted = [part.lstrip("-") for part in device.partition(":")[2].split(",") if part] or [device]
    lost = [d for d in wanted if d != "AUTO" and not any(f == d or f.startswith(d + ".") for f in found)]
    if lost:
        raise ModelLoadError(
            f"model '{model}': TARGET_DEVICE is \"{device}\", and OpenVINO finds no {lost[0]} here, only "
            f"{', '.join(found)}; install the driver of the device, or remove the parameter to run on the CPU"
        )


def _problem(file: Path, error: Exception) -> str:
    """OpenVINO's reason and a remedy, or where an IR stops being XML, of which OpenVINO says nothing."""
    text = reason(error)
    if file.suffix == ".xml":
        problem, version = _inspect_xml(file)
        if problem:
            return f"{problem}; the file is damaged or cut short, export or copy it again"
        if _NO_READER in text and version and version not in _VERSIONS:
            return (
                f"it is IR of version {version}, and OpenVINO {_release()} reads {' and '.join(_VERSIONS)}; convert "
                f"the model again with this OpenVINO"
            )
        weights = file.with_suffix(".bin")
        if "bin file" in text and not weights.exists():
            return f"{text}; there is no {weights.name} beside it, which has the weights: copy both files"
        if "bin file" in text:
            size = weights.stat().st_size
            return f"{text}; {weights.name} has {size} bytes, see that both files are whole and of the same export"
    if (named := _EXTERNAL.search(text)) and (lost := _lost_weights(file, named[1])):
        return f"{text}; {lost}"
    return f"{text}; the file is damaged, of another format, or has operators that this OpenVINO does not know"


def _lost_weights(file: Path, name: str) -> str:
    """The fault of a file of weights beside an ONNX model; "" where it is there."""
    weights = file.parent / name
    if not weights.is_file():
        return f"there is no {name} beside it, which has the weights: copy both files"
    return f"{name} has {weights.stat().st_size} bytes, see that both files are whole and of the same export"


def _inspect_xml(file: Path) -> tuple[str, str]:
    """Where a file stops being XML, "" for one that is whole; and its version of the format, "" for no IR."""
    found: list[str] = []

    def see(name: str, attributes: Mapping[str, str]) -> None:
        if name == "net" and not found:
            found.append(attributes.get("version", ""))

    parser = expat.ParserCreate()
    parser.StartElementHandler = see
    try:
        with file.open("rb") as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        return f"it is not XML ({error})", ""
    return "", found[0] if found else ""


def _release() -> str:
    import openvino

    return str(openvino.__version__).partition("-")[0]
