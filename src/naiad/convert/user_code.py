"""Objects in the user's own files: ``file.py:name``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from naiad.convert.errors import StepError


def load_object(place: str) -> Any:
    """The object that ``place`` (``file.py:name``) names. The file's own folder is first on the module path.

    Raises:
        StepError: there is no such file, or no such name in it.
    """
    file, _, name = place.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise StepError(f"there is no {path}", "write it as file.py:name")
    module_name = path.stem
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise StepError(f"{path} is no Python file", "write it as file.py:name")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = ", ".join(n for n in vars(module) if not n.startswith("_")) or "nothing"
            raise StepError(f"{path} has no '{name}'", f"it has: {names}")
        found = getattr(found, part)
    return found
