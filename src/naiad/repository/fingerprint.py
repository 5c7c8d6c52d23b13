"""Whether a model's files have changed since it was loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from naiad.config.source import ModelSource

Fingerprint = frozenset[tuple[str, int, int]]
"""Of every file of a model its path, its time of modification in ns and its size; of every folder its path."""

_CACHE = "__pycache__"


def fingerprint(source: ModelSource) -> Fingerprint:
    """What tells the present files of ``source`` from later ones; reads folders, but no file.

    Python writes the folders ``__pycache__`` itself, so they do not count.
    """
    if source.directory is not None:
        return frozenset(_below(str(source.directory)))
    return frozenset([_of_file(str(source.single_file))])


def _below(folder: str) -> Iterator[tuple[str, int, int]]:
    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        identity = _identity(place)
        # A link may lead to a folder that holds it.
        folders[:] = [] if identity in seen else [name for name in folders if name != _CACHE]
        seen.add(identity)
        yield place, 0, 0
        for name in files:
            yield _of_file(os.path.join(place, name))


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return -1, -1
    return found.st_dev, found.st_ino


def _of_file(path: str) -> tuple[str, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        # A link that leads nowhere, or a file that went meanwhile: that it is there by name is all there is to know.
        return path, -1, -1
    return path, found.st_mtime_ns, found.st_size
