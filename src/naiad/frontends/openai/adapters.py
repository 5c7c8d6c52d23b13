"""LoRA adapters: variants of a model that its requests name behind its own name.

Source: the reference's front end and the backend for vLLM, whose models list theirs in ``multi_lora.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from naiad.config.source import ModelSource

_LIST: Final = "multi_lora.json"
_ENGINE: Final = "model.json"


def split_name(name: str, separator: str) -> tuple[str, str]:
    """The model and the adapter that a request names; without an adapter it is "".

    ``separator`` stands between both; with "" names have no adapters.
    """
    parts = name.split(separator) if separator else [name]
    return (parts[0], parts[1]) if len(parts) == 2 else (name, "")


def adapters_of(source: ModelSource) -> list[str]:
    """The adapters of the highest version of a model. Reads files: for threads."""
    if not source.versions:
        return []
    version = source.versions[max(source.versions)]
    is_on = str(_object(version / _ENGINE).get("enable_lora", "")).lower() == "true"
    return list(_object(version / _LIST)) if is_on else []


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        # The backend says what is wrong with its files.
        return {}
    return found if isinstance(found, dict) else {}
