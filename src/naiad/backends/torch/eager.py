"""Models in Python: ``model.py`` with a class of ``torch.nn.Module``, and its weights in a file beside it."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import json
import logging
import re
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.torch.archive import FileKind, check_file, kind_of
from naiad.backends.torch.data_guard import DataGuard, has_compiled_code
from naiad.backends.torch.instance import CallPlan, TorchInstance
from naiad.backends.torch.model import LoadedModules, TorchModel
from naiad.backends.torch.plan import call_plan, no_tensors
from naiad.backends.torch.session import MemoryEffects
from naiad.backends.torch.signature import Argument, ForwardSchema
from naiad.backends.torch.trial import check_guarded, shapes_only
from naiad.errors import ModelLoadError, first_line
from naiad.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from naiad.backend_api.backend import BackendContext, Instance
    from naiad.config.spec import ModelSpec

log = logging.getLogger("naiad")

_CLASS: Final = "MODEL_CLASS"
_COMPILE: Final = "COMPILE"
_COMPILE_OPTIONS: Final = "TORCH_COMPILE_OPTIONAL_PARAMETERS"
# What code in Python does to memory is not known.
_ANY_EFFECT: Final = MemoryEffects(writes_inputs=True, writes_state=True, returns_state=True)
# How torch's reader of its own format begins its errors, and what it names that is no tensor.
_READER: Final = "PytorchStreamReader"
_FOREIGN: Final = re.compile(r"Unsupported (?:global: GLOBAL|class) (\S+)")
_numbers = count(1)


class EagerModel(TorchModel):
    """A class in ``model.py``, made without arguments, with the weights of ``model.safetensors`` or ``model.pt``."""

    def __init__(self, context: BackendContext, path: Path) -> None:
        self._context = context
        self._path = path
        self._source: ModuleType | None = None
        self._class: Any = None
        self._plan: CallPlan | None = None
        self._compile: Mapping[str, Any] | None = None
        self._loaded = LoadedModules(self._load)

    def complete(self, config: Any) -> None:
        """Fills nothing in: Python has no types or shapes of tensors. Refuses a configuration without tensors."""
        if not config.input or not config.output:
            parameter = config.parameters.get(_CLASS)
            self._find_class(parameter.string_value if parameter is not None else None)
            raise no_tensors(self._context.model, _schema(self._class.forward))

    def start(self, spec: ModelSpec, device: str | None) -> None:
        """Make the first module with its weights, and fit the configuration to its ``forward``."""
        reader = ParameterReader(spec.name, spec.parameters)
        self._loaded.share = reader.boolean("ENABLE_WEIGHT_SHARING", False)
        self._compile = _compile_options(reader)
        self._find_class(reader.text(_CLASS))
        self._plan = call_plan(spec, _schema(self._class.forward), _ANY_EFFECT, reader)
        module = self._loaded.first(device)
        _check(spec, getattr(module, "_orig_mod", module), self._plan, device)

    def instance(self, device: str | None) -> Instance:
        """An instance with a module of its own, or the shared one."""
        if self._plan is None:
            raise ModelLoadError(f"model '{self._context.model}': start() comes before instance()")
        on_gpu = device is not None and device != "cpu"
        return TorchInstance(self._loaded.take(device), self._plan, device if on_gpu else None)

    @property
    def settling_runs(self) -> int:
        """One where it compiles the module."""
        return 1 if self._compile is not None and self._plan is not None and not self._plan.strings else 0

    def close(self) -> None:
        """Release the modules, and the imported file."""
        self._loaded.clear()
        if self._source is not None:
            sys.modules.pop(self._source.__name__, None)
        self._source = self._class = None

    def _find_class(self, wanted: str | None) -> None:
        if self._source is None:
            self._source = _import(self._context.model, self._path)
        self._class = _model_class(self._context.model, self._source, wanted)

    def _load(self, device: str | None) -> Any:
        model = self._context.model
        try:
            module = self._class()
        except Exception as error:
            raise ModelLoadError(
                f"model '{model}': {self._class.__name__}() in {self._path} failed: "
                f"{type(error).__name__}: {first_line(error)}; it is called without arguments"
            ) from error
        _load_weights(model, self._path, module)
        module = module.eval() if device is None else module.eval().to(device)
        return module if self._compile is None else _compiled(model, module, self._compile)


def _check(spec: ModelSpec, module: Any, plan: CallPlan, device: str | None) -> None:
    """Compare what ``module`` takes and returns with the configuration.

    Its code may do anything, so copies of it run.

    Raises:
        ModelLoadError: as ``check_guarded``.
    """
    if plan.strings:
        return
    on_gpu = device is not None and device != "cpu"
    try:
        with_data = _copy(module, lambda tensor: tensor)
    except Exception as error:
        log.info("model '%s' cannot be copied, so its types and shapes are not checked: %s", spec.name, error)
        return
    check_guarded(
        spec,
        lambda: TorchInstance(with_data, plan, device if on_gpu else None),
        lambda: shapes_only(_copy(module, lambda tensor: tensor.to("meta")), plan),
        None if has_compiled_code(module) else DataGuard(),
    )


def _copy(module: Any, weight: Callable[[Any], Any]) -> Any:
    """A copy of ``module``: ``weight`` makes its parameters of those of ``module``, and its buffers of copies."""
    import torch

    taken: dict[int, Any] = {}
    for parameter in module.parameters():
        made = weight(parameter.detach())
        taken[id(parameter)] = torch.nn.Parameter(made, parameter.requires_grad)
    for buffer in module.buffers():
        taken[id(buffer)] = weight(buffer.detach().clone())
    return copy.deepcopy(module, taken)


def _compiled(model: str, module: Any, options: Mapping[str, Any]) -> Any:
    """``module`` as ``torch.compile`` wraps it.

    Raises:
        ModelLoadError: it does not take ``options``.
    """
    import torch

    try:
        # torch imports its compiler here and in the first run, and models are loaded by several threads.
        with IMPORT_LOCK:
            made = torch.compile(module, **options)
            if not options.get("disable", False):
                importlib.import_module("torch._inductor.compile_fx")
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': torch.compile refuses the parameter {_COMPILE_OPTIONS} ({json.dumps(options)}): "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    return made


def _import(model: str, path: Path) -> ModuleType:
    """The file as a module of its own name, so that two versions do not mix."""
    check_file(model, path)
    name = f"naiad_model_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelLoadError(f"model '{model}': {path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    # There while it is imported, as dataclasses look themselves up.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        sys.modules.pop(name, None)
        raise ModelLoadError(
            f"model '{model}': {path} cannot be imported: {type(error).__name__}: {first_line(error)}"
        ) from error
    return module


def _model_class(model: str, source: ModuleType, wanted: str | None) -> Any:
    import torch

    # The file's own: what it imports from libraries is no model of it.
    own = {
        name: value
        for name, value in vars(source).items()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == source.__name__
    }
    if wanted is None and len(own) == 1:
        return next(iter(own.values()))
    if wanted in own:
        return own[wanted]
    found = ", ".join(own) or "none"
    problem = "has several" if wanted is None and own else "has none" if wanted is None else f"has no '{wanted}'"
    raise ModelLoadError(
        f"model '{model}': {source.__file__} {problem}, expected one class of torch.nn.Module, found {found}; the "
        f"parameter {_CLASS} names the one to serve"
    )


def _load_weights(model: str, path: Path, module: Any) -> None:
    """Load the state dict beside the file into ``module``, all of it and nothing else."""
    files = [path.with_suffix(".safetensors"), path.with_suffix(".pt")]
    file = next((f for f in files if f.is_file()), None)
    if file is None:
        if module.state_dict():
            names = " nor ".join(f.name for f in files)
            raise ModelLoadError(
                f"model '{model}': {type(module).__name__} has {len(module.state_dict())} weights, and there is "
                f"neither {names} in {path.parent}; write one with torch.save(model.state_dict(), 'model.pt')"
            )
        return
    state = _safetensors(model, file) if file.suffix == ".safetensors" else _state(model, file)
    try:
        module.load_state_dict(state)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': the weights in {file} do not fit {type(module).__name__} in {path.name}: "
            f"{' '.join(str(error).split())}"
        ) from error


def _safetensors(model: str, file: Path) -> Any:
    try:
        from safetensors.torch import load_file
    except ImportError as error:
        raise ModelLoadError(
            f"model '{model}': {file} needs the package safetensors; run: {how_to_install('torch')}"
        ) from error
    try:
        return load_file(file)
    except Exception as error:
        raise ModelLoadError(
            f"model '{model}': {file} cannot be read: {first_line(error)}; it is damaged or cut short, copy it again"
        ) from error


def _state(model: str, file: Path) -> Any:
    import torch

    if kind_of(file) is FileKind.SCRIPT:
        raise ModelLoadError(
            f"model '{model}': {file} is a TorchScript file, expected the weights of model.py as torch.save("
            f"model.state_dict(), ...) writes them; to serve the TorchScript file, remove model.py"
        )
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        problem = _unreadable(error)
        raise ModelLoadError(f"model '{model}': {file} cannot be read as weights alone: {problem}") from error
    if not isinstance(state, dict):
        raise ModelLoadError(f"model '{model}': {file} holds {type(state).__name__}, expected a state dict")
    return state


def _unreadable(error: Exception) -> str:
    """Why a file of ``torch.save`` is not loaded, and a remedy. torch's own remedy is to run what the file says."""
    text = str(error)
    if _READER in text:
        return f"{first_line(error).partition('. ')[0]}; the file is damaged or cut short, copy or save it again"
    held = _FOREIGN.search(text)
    reason = f"it holds a {held[1]}" if held else first_line(error).partition(". ")[0]
    return (
        f"{reason}; a file with other objects can run any code and is not loaded, so write one with "
        f"torch.save(model.state_dict(), 'model.pt')"
    )


def _schema(forward: Any) -> ForwardSchema:
    """The arguments of ``forward``; their types are taken as tensors, or lists of strings where they say so."""
    signature = inspect.signature(forward)
    ordinary = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = [p for p in list(signature.parameters.values())[1:] if p.kind in ordinary]
    arguments = tuple(Argument(p.name, _type(p.annotation), p.default is not p.empty) for p in found)
    returns = _type(signature.return_annotation)
    return ForwardSchema(arguments, returns, None, str(signature), "a class of Python")


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else str(annotation)
    plain = text.replace("typing.", "").lower()
    if plain == "list[str]":
        return "List[str]"
    return "Dict[str, Tensor]" if plain in ("dict[str, tensor]", "dict[str, torch.tensor]") else "Tensor"


def _compile_options(reader: ParameterReader) -> Mapping[str, Any] | None:
    """The arguments of ``torch.compile``, None for no compilation."""
    text = reader.text(_COMPILE_OPTIONS)
    if not reader.boolean(_COMPILE, text is not None):
        return None
    try:
        options = json.loads(text or "{}")
    except ValueError:
        options = None
    if not isinstance(options, dict) or "model" in options:
        raise reader.refused(_COMPILE_OPTIONS, "arguments of torch.compile as a JSON object, without 'model'")
    return options
