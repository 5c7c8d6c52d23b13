"""The folder into which torch extracts a package of AOTInductor, removed as soon as its code is loaded.

Torch removes it with the loader, so a process that is killed would leave it behind.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PREFIX: Final = "aotinductor_"
_MAPPED: Final = Path("/proc/self/maps")
_LOADING: Final = threading.Lock()


@contextlib.contextmanager
def extracted_only_while_loading() -> Iterator[None]:
    """Remove what torch extracts within the block: the loaded code stays, as it is mapped into memory.

    Code for GPUs reads further files when it first runs, so it must not be loaded here. One load at a time: the folder
    is the one that this process maps files of since. Without ``/proc`` torch removes it with the loader.
    """
    with _LOADING:
        before = _folders()
        try:
            yield
        finally:
            for folder in _folders() - before:
                shutil.rmtree(folder, ignore_errors=True)


def _folders() -> set[Path]:
    """The folders with extracted packages that this process has mapped files of."""
    try:
        lines = _MAPPED.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    # The sixth field is the path, which may have spaces.
    files = {Path(fields[5]) for line in lines if _PREFIX in line and len(fields := line.split(None, 5)) > 5}
    return {folder for file in files for folder in file.parents if folder.name.startswith(_PREFIX)}
