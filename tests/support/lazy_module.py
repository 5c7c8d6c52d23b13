"""Frameworks that are imported when a test first uses them.

Each process of a test run collects all files and runs the tests of some. A framework at the top of a file would be
imported by all of them, which takes seconds of each.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest


class LazyModule(ModuleType):
    """Stands for a module, which is imported at the first look at one of its names."""

    def __getattr__(self, name: str) -> Any:
        # Names such as ``__path__`` are asked for by what only looks at modules.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def lazy_module(name: str, reason: str) -> Any:
    """The module ``name``, not imported yet; skips the file that asks for it, with ``reason``, where it is missing."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return LazyModule(name)
