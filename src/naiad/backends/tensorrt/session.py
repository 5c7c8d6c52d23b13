"""Engines: a plan as TensorRT loads it onto one GPU, and TensorRT's own words about what fails."""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import Any, Final

from naiad.backends.tensorrt.cuda import call
from naiad.backends.tensorrt.settings import PlanSettings
from naiad.errors import ModelLoadError

log = logging.getLogger("naiad")

_MOST: Final = 8
_loading = threading.Lock()
"""Held while anything is loaded: plugins and engines of TensorRT are registered in one place for the process."""
_messages: Any = None
_plugins: set[str] = set()


def messages() -> Any:
    """The logger that TensorRT writes to: one for the process, as TensorRT has it."""
    global _messages
    if _messages is None:
        _messages = _make_messages()
    return _messages


def _make_messages() -> Any:
    import tensorrt

    class Messages(tensorrt.ILogger):  # type: ignore[misc]
        """Keeps the last errors of each thread for the texts of failures; the rest goes to the log of the server."""

        def __init__(self) -> None:
            tensorrt.ILogger.__init__(self)
            self._own = threading.local()

        def log(self, severity: Any, text: str) -> None:
            levels = tensorrt.ILogger.Severity
            if severity in (levels.INTERNAL_ERROR, levels.ERROR):
                self._last().append(text)
            elif severity == levels.WARNING:
                log.warning("tensorrt: %s", text)
            else:
                log.debug("tensorrt: %s", text)

        def taken(self) -> str:
            """The errors of this thread since the last call, "" without any."""
            last = self._last()
            text = "; ".join(dict.fromkeys(last))
            last.clear()
            return text

        def _last(self) -> deque[str]:
            if not hasattr(self._own, "last"):
                self._own.last = deque(maxlen=_MOST)
            last: deque[str] = self._own.last
            return last

    return Messages()


def load_engine(model: str, path: Path, device: int, dla: int | None, settings: PlanSettings) -> Any:
    """The engine of a plan on one GPU, which all instances there share.

    ``dla`` is the deep learning accelerator beside it, None for none.

    Raises:
        ModelLoadError: it cannot be loaded; the text is TensorRT's own.
    """
    import tensorrt

    if not path.is_file():
        raise ModelLoadError(
            f"model '{model}': {path} is no file; put the plan there (trtexec --saveEngine=model.plan)"
        )
    with _loading:
        call("cudaSetDevice", device)
        said = messages()
        runtime = tensorrt.Runtime(said)
        # Code that the plan brings runs in this process, so the operator has to allow it.
        runtime.engine_host_code_allowed = settings.version_compatible
        if dla is not None:
            runtime.DLA_core = dla
        tensorrt.init_libnvinfer_plugins(said, "")
        for library in settings.plugins:
            _load_plugins(model, library)
        engine = runtime.deserialize_cuda_engine(path.read_bytes())
        words = said.taken()
    if engine is None:
        raise ModelLoadError(
            f"model '{model}': TensorRT {tensorrt.__version__} cannot load {path}: {words or 'without a reason'}; a "
            f"plan runs on the kind of GPU and the version of TensorRT that built it: build it here, or build it with "
            f"--versionCompatible and start the server with --backend-config=tensorrt,version-compatible=true"
        )
    return engine


def _load_plugins(model: str, library: str) -> None:
    import tensorrt

    # Once for the process: TensorRT refuses plugins that it has.
    if library in _plugins:
        return
    if tensorrt.get_plugin_registry().load_library(library) is None:
        raise ModelLoadError(
            f"model '{model}': the library {library} with plugins cannot be loaded: "
            f"{messages().taken() or 'without a reason'}; correct --backend-config=tensorrt,plugins=..."
        )
    _plugins.add(library)


def make_context(model: str, engine: Any, strategy: str, profile: int, stream: int) -> Any:
    """An execution context of an engine for one profile.

    Raises:
        ModelLoadError: the GPU has no room for it, or TensorRT refuses it.
    """
    import tensorrt

    with _loading:
        kind = tensorrt.ExecutionContextAllocationStrategy.__members__[strategy]
        context = engine.create_execution_context(kind)
        if context is None or not context.set_optimization_profile_async(profile, stream):
            words = messages().taken()
            raise ModelLoadError(
                f"model '{model}': TensorRT cannot make an execution context for profile {profile}: "
                f"{words or 'without a reason'}; fewer instances, or a smaller workspace of the plan, need less memory"
            )
    return context
