"""Keeps a mirror below its size: removes the least recently used contents that are not in use."""

from __future__ import annotations

import logging
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import time
from typing import Final

from naiad.repository.remote.mirror.objects import Objects
from naiad.repository.remote.mirror.progress import shown
from naiad.repository.remote.mirror.views import BUILDING, MANIFEST, Views, read_manifest

logger = logging.getLogger("naiad")

PARTIAL_S: Final = 7 * 86400
"""Seconds after which a transfer that was not resumed is removed."""


def sweep(objects: Objects, views: Views, in_use: set[str], limit: int, room: int = 0) -> int:
    """Remove contents over ``limit`` bytes, and at least ``room`` bytes. The caller holds the mirror's lock alone.

    Returns:
        The bytes that remain.
    """
    _remove_leftovers(objects, views)
    present = list(views.all())
    sizes = _sizes(objects.folder)
    wanted = Counter(key for name in present for key in _keys(views, name))
    for key in sizes.keys() - wanted.keys():
        # A model that never became complete: its parts are kept as long as there is room.
        wanted[key] = 0
    left = sum(sizes.values()) + _total(objects.partial) + sum(_copies(views.root / name) for name in present)
    limit = min(limit, max(0, left - room))
    # The cheapest loss first: contents of no model, then incomplete ones, then models in the order of their last use.
    for key in [key for key, count in wanted.items() if count == 0]:
        if left <= limit:
            return left
        left -= _drop(objects, key, sizes)
    for path in objects.partial.glob("*"):
        if left <= limit:
            return left
        left -= path.stat().st_size
        path.unlink()
    for name in sorted((name for name in present if name not in in_use), key=lambda name: _used(views, name)):
        if left <= limit:
            break
        left -= _copies(views.root / name)
        keys = _keys(views, name)
        logger.info("removing %s from the mirror, which is over its size", name)
        shutil.rmtree(views.root / name, ignore_errors=True)
        # Models share contents: only those that no other model uses are removed.
        wanted.subtract(keys)
        left -= sum(_drop(objects, key, sizes) for key in keys if wanted[key] == 0)
    # With ``room`` the caller reports what is missing.
    if left > limit and not room:
        logger.warning(
            "the mirror holds %s, more than the %s it may keep (--model-repository-mirror-size): all of it is in use",
            shown(left),
            shown(limit),
        )
    return left


def _remove_leftovers(objects: Objects, views: Views) -> None:
    """Remove the remains of killed servers; no other process works in the mirror now."""
    for path in views.root.glob(f"*/{BUILDING}*"):
        shutil.rmtree(path, ignore_errors=True)
    old = time() - PARTIAL_S
    for path in objects.partial.glob("*"):
        if path.stat().st_mtime < old:
            path.unlink(missing_ok=True)


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*/*")}


def _total(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*"))


def _copies(place: Path) -> int:
    """The bytes of the files of a view that are copies; links are counted with the contents."""
    found = (path.lstat() for path in _files(place))
    return sum(stat.st_size for stat in found if stat.st_nlink == 1)


def _files(place: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(place):
        yield from (Path(folder, name) for name in names)


def _keys(views: Views, name: str) -> list[str]:
    manifest = read_manifest(views.root / name)
    return [] if manifest is None else [key for key, _ in manifest["files"].values()]


def _used(views: Views, name: str) -> float:
    try:
        return (views.root / name / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _drop(objects: Objects, key: str, sizes: dict[str, int]) -> int:
    objects.path(key).unlink(missing_ok=True)
    return sizes.pop(key, 0)
