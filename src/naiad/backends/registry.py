"""Backend names and the classes behind them, imported only when a model needs one."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from naiad.backends.shared.import_lock import IMPORT_LOCK
from naiad.config.complete import PYTHON_RUNTIME
from naiad.errors import BackendUnavailableError, first_line
from naiad.extras import MissingPackageError, how_to_install
from naiad.spelling import nearest_spelling

if TYPE_CHECKING:
    from collections.abc import Mapping

    from naiad.backend_api.backend import Backend, BackendContext


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """Where a backend's class lies, which framework it imports and which extra installs that.

    ``stays``: its instances run on the server's own loop, never in another process.
    ``one_pool``: the framework runs all models of a process in one pool of threads.
    ``needs_gpu``: the framework runs on NVIDIA's GPUs only.
    ``hidden``: a module that the framework imports if it can, and that sends usage data when it is imported.
    ``importer``: the function that imports the framework, where a plain import would not do.
    """

    target: str
    framework: str = ""
    extra: str = ""
    stays: bool = False
    one_pool: bool = False
    needs_gpu: bool = False
    hidden: str = ""
    importer: str = ""


logger = logging.getLogger("naiad")
# Loads look here, so that none of them waits for the import of another framework.
_imported: set[BackendEntry] = set()

PYTHON = "python"
BACKEND_DIRECTORY = "backend-directory"
BACKENDS = {
    "dyna_sequence": BackendEntry("naiad.backends.builtin.sequence:DynaSequenceBackend"),
    "fil": BackendEntry("naiad.backends.fil.backend:ForestBackend", "treelite", "fil"),
    "identity": BackendEntry("naiad.backends.builtin.identity:IdentityBackend"),
    "implicit_state": BackendEntry("naiad.backends.builtin.implicit_state:ImplicitStateBackend"),
    "iterative_sequence": BackendEntry("naiad.backends.builtin.iterative:IterativeSequenceBackend"),
    "keras": BackendEntry(
        "naiad.backends.keras.backend:KerasBackend",
        "keras",
        "keras",
        one_pool=True,
        importer="naiad.backends.keras.framework:import_keras",
    ),
    "onnxruntime": BackendEntry("naiad.backends.onnx.backend:OnnxRuntimeBackend", "onnxruntime", "onnx"),
    "openvino": BackendEntry(
        "naiad.backends.openvino.backend:OpenVinoBackend",
        "openvino",
        "openvino",
        one_pool=True,
        hidden="openvino.tools.ovc",
    ),
    PYTHON: BackendEntry("naiad.backends.python.backend:PythonBackend"),
    "repeat": BackendEntry("naiad.backends.builtin.repeat:RepeatBackend", stays=True),
    "square": BackendEntry("naiad.backends.builtin.square:SquareBackend", stays=True),
    "pytorch": BackendEntry(
        "naiad.backends.torch.backend:PyTorchBackend",
        "torch",
        "torch",
        importer="naiad.backends.torch.framework:import_torch",
    ),
    "sequence": BackendEntry("naiad.backends.builtin.sequence:SequenceBackend"),
    "tensorflow": BackendEntry("naiad.backends.tensorflow.backend:TensorFlowBackend", "tensorflow", "tensorflow"),
    "tensorrt": BackendEntry("naiad.backends.tensorrt.backend:TensorRtBackend", "tensorrt", "tensorrt", needs_gpu=True),
}

# Backends whose code runs in the worker of a Python model.
_PYTHON_PROGRAMS = frozenset({"iterative_sequence"})

# Backends of the reference server: a name from this list is right, only not served here.
NOT_BUILT = frozenset(("dali", "ensemble", "tensorrtllm", "vllm"))


def known() -> tuple[str, ...]:
    """The names that ``create`` accepts."""
    return tuple(sorted(BACKENDS))


def settings_name(backend: str) -> str:
    """The name whose ``--backend-config`` settings hold for ``backend``: those of ``python`` for a Python-based one."""
    return PYTHON if backend in _PYTHON_PROGRAMS else backend if backend in BACKENDS else PYTHON


def stays(backend: str) -> bool:
    """Whether the models of a backend never run in a process of their own."""
    return backend in BACKENDS and BACKENDS[backend].stays


def has_own_program(backend: str) -> bool:
    """Whether a backend of Naiad's own runs in the worker of a Python model."""
    return backend in _PYTHON_PROGRAMS


def has_one_pool(backend: str) -> bool:
    """Whether the framework of a backend runs all models of a process in one pool of threads."""
    return backend in BACKENDS and BACKENDS[backend].one_pool


def create(backend: str, context: BackendContext, remedy: str = "") -> Backend:
    """The backend called ``backend`` (``onnxruntime``, ...) for the model version of ``context``.

    A name that is not known here may be that of a Python-based backend: a folder with a ``model.py`` in the
    ``backend-directory`` of the context's settings.

    Args:
        remedy: what to do when its framework cannot be imported; "" for the extra that installs it.

    Raises:
        BackendUnavailableError: the name is unknown or its framework is not installed; the text says what to do.
    """
    entry = BACKENDS.get(backend)
    if entry is None:
        return _python_based(backend, context)
    _warn_of_shadow(backend, context)
    if entry.needs_gpu:
        _require_gpu(backend, entry, context.model)
    if entry.framework:
        _require(backend, entry, context.model, remedy)
    made: Backend = _attribute(entry.target)(context)
    return made


def _attribute(target: str) -> Any:
    """What a text such as ``package.module:name`` names."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def create_in_thread(backend: str, context: BackendContext) -> Backend:
    """The backend of a Python model that runs in threads of the server; arguments and errors as ``create``."""
    from naiad.backends.python.in_thread import PythonThreadBackend

    return PythonThreadBackend(context, None if backend == PYTHON else _python_based_file(backend, context))


def _python_based(backend: str, context: BackendContext) -> Backend:
    # Imported here: a server without Python models does not pay for it.
    from naiad.backends.python.backend import PythonBackend

    return PythonBackend(context, _python_based_file(backend, context))


def _python_based_file(backend: str, context: BackendContext) -> Path:
    file = _backend_file(backend, context.backend_config)
    if file is None or not file.is_file():
        raise _unknown(backend, context.model, file)
    return file


def _backend_file(backend: str, settings: Mapping[str, str]) -> Path | None:
    """The file of a Python-based backend, which need not exist; None for a name that no folder can have."""
    folder = settings.get(BACKEND_DIRECTORY)
    # The name comes from a configuration, perhaps from a load request, and must not lead out of the folder.
    if not folder or backend in ("", ".", "..") or any(mark in backend for mark in "/\\\0"):
        return None
    return Path(folder).absolute() / backend / PYTHON_RUNTIME


def _warn_of_shadow(backend: str, context: BackendContext) -> None:
    file = _backend_file(backend, context.backend_config)
    if file is not None and file.is_file():
        logger.warning(
            "model '%s': %s is not used, '%s' is a backend of Naiad itself; to use it, give its folder another name",
            context.model,
            file,
            backend,
        )


def _require_gpu(backend: str, entry: BackendEntry, model: str) -> None:
    """Check that there is a GPU before anything is said of a framework that would be of no use without one."""
    # Imported here: other frameworks run without a GPU.
    from naiad.gpus.driver import LIBRARY, gpus

    if gpus():
        return
    lacking = "" if find_spec(entry.framework) else f", and the package {entry.framework} is not installed either"
    raise BackendUnavailableError(
        f"model '{model}' needs the backend '{backend}', which runs on NVIDIA's GPUs only, and this machine has none "
        f"that works ({LIBRARY}){lacking}; serve the ONNX file that the plan was built from, or run it on a machine "
        f"with a GPU, after: {how_to_install(entry.extra)}"
    )


def _require(backend: str, entry: BackendEntry, model: str, remedy: str) -> None:
    """Import the framework. A broken installation fails with OSError where a shared library is missing."""
    try:
        import_framework(entry)
    except (ImportError, OSError) as error:
        command = error.command if isinstance(error, MissingPackageError) else how_to_install(entry.extra)
        raise BackendUnavailableError(
            f"model '{model}' needs the backend '{backend}', and {entry.framework} cannot be imported "
            f"({first_line(error)}); {remedy or f'run: {command}'}"
        ) from error


def import_framework(entry: BackendEntry) -> None:
    """Import the framework of ``entry``, without its hidden module unless somebody has imported that."""
    if entry in _imported:
        return
    with IMPORT_LOCK, _uncollected(entry.framework):
        _import(entry)
        _imported.add(entry)


@contextmanager
def _uncollected(framework: str) -> Iterator[None]:
    """Collect no garbage meanwhile: a framework makes hundreds of thousands of objects that stay, and the collections
    that look at them again and again take a sixth of the time of the import.

    Nor are they looked at later if it is the first framework. After that there are models, whose objects may become
    garbage.
    """
    is_first = _is_alone("")
    if is_first:
        # What is garbage already would stay.
        gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_first and _is_alone(framework):
            gc.freeze()
        if was_enabled:
            gc.enable()


def _is_alone(framework: str) -> bool:
    """Whether no other framework is there, or is imported now."""
    return not any(
        entry.framework in sys.modules for entry in BACKENDS.values() if entry.framework not in ("", framework)
    )


def _import(entry: BackendEntry) -> None:
    if entry.importer:
        _attribute(entry.importer)()
        return
    if not entry.hidden or entry.framework in sys.modules:
        import_module(entry.framework)
        return
    sys.modules.setdefault(entry.hidden, None)  # type: ignore[arg-type]
    try:
        import_module(entry.framework)
    finally:
        if sys.modules[entry.hidden] is None:
            del sys.modules[entry.hidden]


def _unknown(backend: str, model: str, file: Path | None) -> BackendUnavailableError:
    names = ", ".join(known())
    looked = f"; there is no Python-based backend {file} either (--backend-directory)" if file else ""
    # Such a name is spelled right, so no similar one is proposed.
    if backend in NOT_BUILT:
        return BackendUnavailableError(
            f"model '{model}' needs the backend '{backend}', which is not supported by this version of "
            f"Naiad; it has: {names}{looked}"
        )
    near = nearest_spelling(backend.lower(), BACKENDS, 0.5)
    hint = f"; did you mean '{near}'?" if near else ""
    return BackendUnavailableError(
        f"model '{model}' needs an unknown backend '{backend}'; known are: {names}{looked}{hint}"
    )
