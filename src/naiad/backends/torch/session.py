"""Loading a TorchScript module, and the effects of its ``forward`` on memory."""

from __future__ import annotations

import re
import warnings
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from naiad.backends.torch.archive import FileKind, check_file, kind_of
from naiad.errors import ModelLoadError, first_line

if TYPE_CHECKING:
    from pathlib import Path

_EXCEPTION_LINE = re.compile(r"^(?:builtins\.)?((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*)$", re.MULTILINE)
_HERE = re.compile(r"^(.*)\n\s*~+ <--- HERE$", re.MULTILINE)
_ENFORCED = re.compile(r"^\[enforce fail at [^]]*\] \.?\s*")
_NEWER = re.compile(r"file with version (\d+), but the maximum supported version for reading is (\d+)")
_OPERATOR = re.compile(r"Unknown builtin op: (\S+?)\.?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class MemoryEffects:
    """The effects that ``forward`` may have on memory, by TorchScript's own alias analysis; True when in doubt."""

    writes_inputs: bool
    writes_state: bool
    returns_state: bool


def load_module(model: str, path: Path, device: str | None) -> Any:
    """The ``ScriptModule`` in ``path``, placed on ``device`` (None: where it was saved).

    Raises:
        ModelLoadError: the file cannot be loaded; the text has the path, the framework's reason and a remedy.
    """
    import torch

    check_file(model, path)
    # This backend needs TorchScript, and an operator cannot act on its deprecation.
    warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated", category=DeprecationWarning)
    try:
        module = torch.jit.load(str(path), map_location=device)
    except Exception as error:
        raise ModelLoadError(f"model '{model}': torch cannot load {path}: {_problem(path, error)}") from error
    if not hasattr(module, "forward"):
        raise ModelLoadError(f"model '{model}': the module in {path} has no method forward; export one that has")
    return module


def memory_effects(graph: Any) -> MemoryEffects:
    """The effects of a ``forward`` with the graph ``module.inlined_graph``."""
    aliases = graph.alias_db()
    # The first input of a method is the module itself.
    state, *inputs = graph.inputs()
    return MemoryEffects(
        writes_inputs=any(aliases.has_writers(value) for value in inputs),
        writes_state=aliases.has_writers(state),
        returns_state=any(aliases.may_contain_alias(state, value) for value in graph.outputs()),
    )


def failure_text(error: BaseException) -> str:
    """The last words of a TorchScript failure: the exception itself and the line of the model that raised it."""
    text = str(error).strip()
    found = list(_EXCEPTION_LINE.finditer(text))
    message = text[found[-1].start(1) :] if found else _named(error, text)
    places = _HERE.findall(text)
    return f"{message} (at: {places[-1].strip()})" if places else message


def _named(error: BaseException, text: str) -> str:
    name = type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}" if text else name


def _problem(path: Path, error: Exception) -> str:
    """torch's reason and a remedy."""
    import torch

    text = _ENFORCED.sub("", str(error))
    if text.startswith("CUDA error"):
        # Of the GPU, not of the file.
        return first_line(error)
    if version := _NEWER.search(text):
        return (
            f"it has version {version[1]} of the format, and torch {torch.__version__} reads up to {version[2]}; "
            f"update torch, or export the model with this one"
        )
    if operator := _OPERATOR.search(text):
        return (
            f"torch {torch.__version__} has no operator {operator[1]}; update torch, or export the model without it. "
            f"Operators of other packages are not imported"
        )
    return f"{first_line(Exception(text)).split('. ')[0]}; {_hint(path)}"


def _hint(path: Path) -> str:
    kind = kind_of(path)
    if kind is FileKind.SCRIPT:
        return "the file is damaged or incomplete; export or copy it again"
    if kind is not FileKind.UNKNOWN or zipfile.is_zipfile(path):
        return (
            "a file written by torch.save() holds no program; put model.py with the model's class beside it, or export "
            "with torch.jit.trace(model, example) or torch.jit.script(model), then .save()"
        )
    return "the file is damaged, cut short or not a TorchScript file; export or copy it again"
