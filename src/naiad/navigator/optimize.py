"""``optimize`` of every framework: keeps the object and the samples as files, then converts."""

from __future__ import annotations

import inspect
import itertools
import logging
import shutil
import sys
import sysconfig
from collections import ChainMap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final

import cloudpickle

from naiad.convert.errors import ConvertError, StepError
from naiad.convert.run import Converter
from naiad.convert.samples import collect, write_samples
from naiad.convert.settings import ConvertSettings, Verification
from naiad.convert.user_code import load_object
from naiad.navigator.configuration import CustomConfig, DeviceKind, OnnxConfig, OptimizationProfile
from naiad.navigator.converted import Package
from naiad.navigator.exceptions import ModelNavigatorConfigurationError
from naiad.navigator.formats import our_formats
from naiad.navigator.nested import is_nested, of_tensors, take_apart, tensors_alone

log = logging.getLogger("naiad")
_INSTALLED: Final = ("stdlib", "platstdlib", "purelib", "platlib")


def optimize(
    model: Any,
    dataloader: Iterable[Any],
    sample_count: int | None = 100,
    batching: bool | None = True,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    target_formats: Sequence[Any] | None = None,
    target_device: DeviceKind | None = DeviceKind.CPU,
    runners: Sequence[Any] | None = None,
    optimization_profile: OptimizationProfile | None = None,
    workspace: str | Path | None = None,
    verbose: bool | None = False,
    debug: bool | None = False,
    verify_func: Callable[..., Any] | None = None,
    custom_configs: Sequence[CustomConfig] | None = None,
    model_precision: Any = None,
) -> Package:
    """Convert a live object, or the file that a path names, to other formats, verify and measure them.

    ``target_device``, ``runners``, ``debug`` and ``model_precision`` have no effect.

    Raises:
        ConvertError: the model or the samples cannot be used.
        ModelNavigatorConfigurationError: none of the target formats is made here, or of a model of this kind.
    """
    # Before the last call's workspace goes.
    formats = our_formats(target_formats)
    work = Path(workspace or "navigator_workspace").resolve()
    # As the original's: a workspace is that of the last call.
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    count = sample_count or 100
    model, elements = _of_tensors(model, list(itertools.islice(dataloader, count)))
    _write_samples(elements, tuple(input_names or ()), work / "samples")
    place = str(model) if isinstance(model, str | Path) else _pickled(model, work / "source.pkl")
    function = "" if verify_func is None else verify_file(verify_func, work)
    opset = next((one.opset or 0 for one in custom_configs or () if isinstance(one, OnnxConfig)), 0)
    settings = ConvertSettings(
        model=place,
        data="",
        work=work,
        formats=formats,
        sample_count=count,
        # As the original: on unless the caller says otherwise. None would look for itself.
        batching=None if batching else False,
        output_names=tuple(output_names or ()),
        verification=Verification(function=function),
        measuring=(optimization_profile or OptimizationProfile()).measuring(),
        name="model",
        opset=opset,
    )
    progress = print if verbose else None
    conversion = Converter(settings, progress, has_samples=True).run()
    if formats and not conversion.formats:
        raise ModelNavigatorConfigurationError("; ".join(conversion.notes) + "; name other target formats")
    return Package(conversion, model)


def _write_samples(elements: list[Any], names: tuple[str, ...], folder: Path) -> None:
    try:
        samples = collect(elements, len(elements), names, "the data loader")
    except StepError as error:
        raise ConvertError(f"{error}; {error.advice}") from None
    write_samples(samples, folder)


def _of_tensors(model: Any, elements: list[Any]) -> tuple[Any, list[Any]]:
    """A module of torch that takes more than tensors as one that takes tensors alone, with their samples."""
    torch = sys.modules.get("torch")
    if not elements or torch is None or not isinstance(model, torch.nn.Module):
        return model, elements
    tensors, structure = take_apart(elements[0])
    if not tensors or not is_nested(structure):
        return model, elements
    return of_tensors(model, structure), list(tensors_alone(elements, structure))


def _reduced(code: CodeType) -> tuple[Any, tuple[Any, ...]]:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    # What cloudpickle has in place of the file; names of code are no such text.
    return make, tuple(code.co_filename if one == "<dynamic-code>" else one for one in arguments)


class _SourcePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the files of code: ``torch.jit.script`` reads the source of a script's own module there."""

    dispatch_table: ClassVar[Any] = ChainMap({CodeType: _reduced}, cloudpickle.Pickler.dispatch_table)


def _pickled(model: Any, file: Path) -> str:
    root = _own_package(model)
    try:
        if root is None or not _dumped_by_value(model, file, root):
            _dump(model, file)
    except Exception as error:
        raise ConvertError(f"the model cannot be pickled for the steps' processes: {error}") from error
    return f"pickle:{file}"


def _dump(model: Any, file: Path) -> None:
    with file.open("wb") as stream:
        _SourcePickler(stream).dump(model)


def _own_package(model: Any) -> ModuleType | None:
    """The package or module of a function that is not installed: where a Python model is served, it is not there."""
    if not inspect.isroutine(model):
        return None
    name = str(getattr(model, "__module__", None) or "")
    place = getattr(sys.modules.get(name), "__file__", None)
    if place is None or any(Path(place).is_relative_to(sysconfig.get_path(one)) for one in _INSTALLED):
        return None
    return sys.modules.get(name.partition(".")[0])


def _dumped_by_value(model: Any, file: Path, root: ModuleType) -> bool:
    """Pickle a function with what it uses of its own package; False where that holds something without a pickle."""
    cloudpickle.register_pickle_by_value(root)
    try:
        _dump(model, file)
    except Exception as error:
        log.warning("%s stays a part of the model by its name alone: %s", root.__name__, error)
        return False
    finally:
        cloudpickle.unregister_pickle_by_value(root)
    return True


def verify_file(function: Callable[..., Any], work: Path) -> str:
    """A Python file with the function, which the steps' processes load."""
    # Its folder comes onto the module path, and the workspace itself has folders with names of frameworks.
    folder = work / "verify"
    folder.mkdir()
    _pickled(function, folder / "verify.pkl")
    text = (
        f"import pickle\n\nwith open({str(folder / 'verify.pkl')!r}, 'rb') as file:\n    verify = pickle.load(file)\n"
    )
    (folder / "verify_function.py").write_text(text, encoding="utf-8")
    place = f"{folder / 'verify_function.py'}:verify"
    load_object(place)
    return place
