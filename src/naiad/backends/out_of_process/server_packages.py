"""Packages that the server lends to a worker whose environment lacks them.

A worker imports Naiad, and that imports ``numpy``, ``google.protobuf`` and ``ml_dtypes``. The environment has to have
numpy, which it shares with its framework. The other two may come from the server if both Pythons load the same compiled
modules. Nothing else of the server's packages can be imported: a framework must never be found there by mistake.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Final

VARIABLE: Final = "NAIAD_SERVER_PACKAGES"
"""The environment variable that tells a worker the folders of the packages that it may borrow."""

DISTRIBUTIONS: Final[Mapping[str, str]] = {"google.protobuf": "protobuf", "ml_dtypes": "ml-dtypes"}
"""The modules that can be lent, and the distributions that have them."""

# The compiled part of a package that lies beside it.
_BESIDE: Final[Mapping[str, str]] = {"google.protobuf": "google._upb"}


def folders_of(modules: Iterable[str]) -> str:
    """The value of ``VARIABLE`` that lends these modules, which this process has."""
    return os.pathsep.join(f"{module}={_search_folder(module)}" for module in modules)


def _search_folder(module: str) -> str:
    found = find_spec(module)
    if found is None or found.origin is None:
        raise ImportError(f"the server itself has no {module}")
    folder = os.path.dirname(found.origin)
    for _ in module.split("."):
        folder = os.path.dirname(folder)
    return folder


def borrow(text: str) -> None:
    """Make the modules importable that ``text``, the value of ``VARIABLE``, names."""
    pairs = (entry.partition("=") for entry in text.split(os.pathsep) if entry)
    folders = {module: folder for module, _, folder in pairs}
    for module in [name for name in folders if name in _BESIDE]:
        folders[_BESIDE[module]] = folders[module]
    # Last: what the environment has comes first.
    sys.meta_path.append(ServerPackageFinder(folders))


class ServerPackageFinder:
    """Finds a few packages, each in a search folder of its own."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module ``name`` if it is one of the packages, or a package around one."""
        folder = self._folders.get(name)
        if folder is not None:
            parents = name.split(".")[:-1]
            return PathFinder.find_spec(name, [os.path.join(folder, *parents)])
        if any(package.startswith(f"{name}.") for package in self._folders):
            # Empty, so that the other packages around it stay hidden.
            return ModuleSpec(name, None, is_package=True)
        return None
