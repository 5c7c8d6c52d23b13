"""Fingerprints that tell whether a model's files have changed since it was loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from naiad.config.source import ModelSource

Fingerprint = frozenset[tuple[str, int, int]]
"""The path, modification time (ns) and size (bytes) of each file of a model; the path alone of each folder."""

MAX_FILES: Final = 200_000
"""The most files and folders of a model: more come from a link that leads out of the model by mistake."""
_CACHE = "__pycache__"


def fingerprint(source: ModelSource) -> Fingerprint:
    """The fingerprint of the present files of ``source``. It reads folders, but no files.

    Python writes the folders ``__pycache__`` itself, so they do not count.

    Raises:
        ModelLoadError: there are more than ``MAX_FILES``.
    """
    return frozenset(_mark(*found) for found in walk(source))


def _mark(path: str, found: os.stat_result | None, is_folder: bool) -> tuple[str, int, int]:
    if found is None:
        return (path, 0, 0) if is_folder else (path, -1, -1)
    return path, found.st_mtime_ns, found.st_size


def walk(source: ModelSource) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    """Every file and folder of ``source``: its path, its status, and whether it is a folder.

    The status is None for a folder and for a path that cannot be followed.

    Raises:
        ModelLoadError: there are more than ``MAX_FILES``.
    """
    folder = source.directory or source.single_file
    if folder is not None and folder.is_dir():
        for number, found in enumerate(_below(str(folder))):
            if number == MAX_FILES:
                raise ModelLoadError(
                    f"the folder of model '{source.name}' holds more than {MAX_FILES} files and folders, the last of "
                    f"them '{found[0][-500:]}': take them out, or the link that leads there"
                )
            yield found
    else:
        path = str(source.single_file)
        yield path, _stat(path), False


def _below(folder: str) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    above: dict[str, frozenset[tuple[int, int]]] = {}
    for place, folders, files in os.walk(folder, followlinks=True):
        found = _stat(place)
        identity = (found.st_dev, found.st_ino) if found is not None else (-1, -1)
        holders = above.pop(place, frozenset())
        # ``holders`` are the folders above, links followed. A link to one of them would be walked for ever.
        folders[:] = [] if identity in holders else [name for name in folders if name != _CACHE]
        above.update({os.path.join(place, name): holders | {identity} for name in folders})
        yield place, None, True
        for name in files:
            path = os.path.join(place, name)
            yield path, _stat(path), False


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        # A dangling link, or a file that was removed meanwhile: only its name is known.
        return None
