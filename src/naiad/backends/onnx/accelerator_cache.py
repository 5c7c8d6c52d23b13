"""What accelerators have built, kept in a folder of the user over restarts: engines of TensorRT, programs of OpenVINO.

Each model has a folder under a hash of all that its content is made from: the model's files, the accelerator with its
options, the version of ONNX Runtime, and the device. A lock beside it keeps two instances from building the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.build_lock import locked
from naiad.cache_folder import cache_folder
from naiad.errors import ModelLoadError, first_line
from naiad.gpus.driver import gpus

if TYPE_CHECKING:
    from naiad.backends.onnx.accelerators import Acceleration

log = logging.getLogger("naiad")

SETTING: Final = "accelerator-cache"
"""The setting of ``--backend-config`` that names the folder of all models."""
BUILD_S: Final = 3600.0
"""How long an instance waits for another one that builds."""
_MANIFEST: Final = "naiad.json"
# Files that never change once they are written. Others, such as TensorRT's engines, grow with the shapes of requests.
_FINAL: Final = ".blob"
_UNUSABLE: Final = "model '%s': what %s had built cannot be used (%s), it is built anew in %s"
# Counts the layouts of the folder.
_LAYOUT: Final = 1


def accelerator_cache(setting: str | None) -> Path:
    """The folder for all models: ``setting``, or that of Naiad."""
    return Path(setting).absolute() if setting else cache_folder("accelerated")


def build_folder(base: Path, file: Path, acceleration: Acceleration, version: str, device: int | None) -> Path:
    """The folder of one model, accelerator and device.

    Args:
        file: the model; data files beside it count by name, size and time.
        version: of ONNX Runtime.
        device: the number of a GPU, None for the processor.
    """
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256")
    for other in sorted(file.parent.iterdir()):
        if other != file and other.is_file():
            found = other.stat()
            digest.update(repr((other.name, found.st_size, found.st_mtime_ns)).encode())
    options = sorted(acceleration.options.items())
    made_by = (_LAYOUT, acceleration.known.provider, version, options, platform.machine(), _device(device))
    digest.update(repr(made_by).encode())
    return base / digest.hexdigest()[:32]


def with_builds(model: str, title: str, folder: Path, make: Callable[[], Any]) -> Any:
    """What ``make`` makes, which finds what was built earlier in ``folder``, or builds it there.

    Damaged builds are removed, which is logged, and made anew.

    Args:
        title: of the accelerator, for the log.

    Raises:
        ModelLoadError: of ``make``, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelLoadError(
            f"model '{model}': the folder for what {title} builds, {folder}, cannot be made: {error.strerror}; "
            f"--backend-config=onnxruntime,{SETTING}=<folder> names another one"
        ) from None
    lock = folder.with_suffix(".lock")
    with locked(lock, BUILD_S):
        damage = _damage(folder)
        if damage is None:
            log.info("model '%s': %s builds what it runs, once; it is kept in %s", model, title, folder)
        elif damage:
            _discard(model, title, folder, damage)
        if damage != "":
            return _built(folder, make)
        before = _stamps(folder)
    try:
        made = make()
    except ModelLoadError as error:
        with locked(lock, BUILD_S):
            _discard(model, title, folder, first_line(error))
            return _built(folder, make)
    with locked(lock, BUILD_S):
        _note_replaced(model, title, folder, before)
    return made


def _note_replaced(model: str, title: str, folder: Path, before: dict[str, tuple[int, int]]) -> None:
    """An accelerator may replace what it refuses without a word. Most write what they accept again, unchanged."""
    after = _stamps(folder)
    if any(after.get(name) != stamp for name, stamp in before.items()) and (damage := _damage(folder)):
        log.warning(_UNUSABLE, model, title, f"{title} refused it: {damage}", folder)
        _write_manifest(folder)


def _built(folder: Path, make: Callable[[], Any]) -> Any:
    made = make()
    _write_manifest(folder)
    return made


def _write_manifest(folder: Path) -> None:
    digests = {path.name: _digest(path) for path in _final_files(folder)}
    # In one step, so that a server that is killed leaves none or a whole one.
    written = folder / (_MANIFEST + ".new")
    written.write_text(json.dumps(digests))
    written.rename(folder / _MANIFEST)


def _damage(folder: Path) -> str | None:
    """The fault of the builds in a folder: "" for none, None where no build was completed."""
    try:
        digests = json.loads((folder / _MANIFEST).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return f"{_MANIFEST} is damaged"
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _digest(path) != digest:
            return f"{name} has changed"
    return ""


def _discard(model: str, title: str, folder: Path, reason: str) -> None:
    log.warning(_UNUSABLE, model, title, reason, folder)
    shutil.rmtree(folder)
    folder.mkdir()


def _final_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix == _FINAL)


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """What shows that a file was written again."""
    return {path.name: (found.st_size, found.st_mtime_ns) for path in _final_files(folder) for found in [path.stat()]}


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _device(number: int | None) -> str:
    """What tells this kind of device from others."""
    if number is None:
        return _described(Path("/proc/cpuinfo"), ("model name", "flags", "Features")) or platform.processor()
    # The driver numbers them as the frameworks do, and leaves out what CUDA_VISIBLE_DEVICES hides.
    found = next((gpu for gpu in gpus() if gpu.number == number), None)
    return f"GPU {number}" if found is None else f"{found.name} {found.capability}"


def _described(file: Path, keys: tuple[str, ...]) -> str:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return ""
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return " ".join(found.get(key, "") for key in keys)
