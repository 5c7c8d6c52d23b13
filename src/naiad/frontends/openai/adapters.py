"""LoRA adapters: variants of a model that its requests name behind its own name.

Source: the reference's front end and the backend for vLLM, whose models list theirs in ``multi_lora.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import InvalidArgumentError, NaiadError

if TYPE_CHECKING:
    from naiad.config.source import ModelSource

_LIST: Final = "multi_lora.json"
_ENGINE: Final = "model.json"


def split_name(name: str, separator: str) -> tuple[str, str]:
    """The model and the adapter that a request names; without an adapter it is "".

    ``separator`` stands between both; with "" names have no adapters.
    """
    parts = name.split(separator) if separator else [name]
    return (parts[0], parts[1]) if len(parts) == 2 else (name, "")


class ModelFiles(Protocol):
    """Where the files of models are; ``repository.catalog.Catalog``."""

    def find(self, name: str) -> ModelSource: ...


def adapters_of(files: ModelFiles, model: str) -> list[str] | None:
    """The adapters of the highest version of a model; None if its files do not say. Reads files: for threads."""
    try:
        versions = files.find(model).versions
    except (NaiadError, OSError):
        # A model that was taken out of its repository serves until it is unloaded.
        return None
    if not versions:
        return None
    version = versions[max(versions)]
    engine = _object(version / _ENGINE)
    if engine is None:
        return None
    is_on = str(engine.get("enable_lora", "")).lower() == "true"
    found = _object(version / _LIST) if is_on else {}
    return None if found is None else list(found)


def check_adapter(files: ModelFiles, model: str, adapter: str, name: str) -> None:
    """Check that a model has an adapter, as far as its files say. Reads files: for threads.

    ``name`` is that of both, as a request has it.

    Raises:
        InvalidArgumentError: it has none of this name; the text is the reference's.
    """
    known = adapters_of(files, model)
    if known is not None and adapter not in known:
        raise InvalidArgumentError(f"Unknown LoRA: {adapter}; for model: {name}")


def _object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None without it: the backend says what is wrong with its files."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
