"""Backend names and the classes behind them, imported only when a model needs one."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from naiad.errors import BackendUnavailableError, first_line

if TYPE_CHECKING:
    from naiad.backends.base import Backend, BackendContext


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a backend's class lies, which framework it imports and which extra installs that."""

    target: str
    framework: str = ""
    extra: str = ""


BACKENDS = {
    "identity": Entry("naiad.backends.builtin.identity:IdentityBackend"),
    "onnxruntime": Entry("naiad.backends.onnxruntime:OnnxRuntimeBackend", "onnxruntime", "onnx"),
    "python": Entry("naiad.backends.python.backend:PythonBackend"),
    "pytorch": Entry("naiad.backends.pytorch:PyTorchBackend", "torch", "torch"),
}

# Backends of the reference server: a name from this list is right, only not served here.
NOT_BUILT = frozenset(
    (
        *("dali", "ensemble", "fil", "iterative_sequence", "openvino", "repeat", "sequence", "square"),
        *("tensorflow", "tensorrt", "tensorrtllm", "vllm"),
    )
)


def known() -> tuple[str, ...]:
    """The names that ``create`` accepts."""
    return tuple(sorted(BACKENDS))


def create(backend: str, context: BackendContext) -> Backend:
    """The backend called ``backend`` (``onnxruntime``, ...) for the model version of ``context``.

    Raises:
        BackendUnavailableError: the name is unknown or its framework is not installed; the text says what to do.
    """
    entry = BACKENDS.get(backend)
    if entry is None:
        raise _unknown(backend, context.model)
    if entry.framework:
        _require(backend, entry, context.model)
    module, _, name = entry.target.partition(":")
    made: Backend = getattr(import_module(module), name)(context)
    return made


def _require(backend: str, entry: Entry, model: str) -> None:
    """Import the framework. A broken installation fails with OSError where a shared library is missing."""
    try:
        import_module(entry.framework)
    except (ImportError, OSError) as error:
        raise BackendUnavailableError(
            f"model '{model}' needs the backend '{backend}', and {entry.framework} cannot be imported "
            f"({first_line(error)}); run: pip install 'naiad[{entry.extra}]'"
        ) from error


def _unknown(backend: str, model: str) -> BackendUnavailableError:
    names = ", ".join(known())
    if backend in NOT_BUILT:
        return BackendUnavailableError(
            f"model '{model}' needs the backend '{backend}', which is not supported by this version of "
            f"Naiad; it has: {names}"
        )
    close = difflib.get_close_matches(backend.lower(), BACKENDS, n=1, cutoff=0.5)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return BackendUnavailableError(f"model '{model}' needs an unknown backend '{backend}'; known are: {names}{hint}")
