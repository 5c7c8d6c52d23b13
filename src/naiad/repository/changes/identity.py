"""The identity of a version by the contents of its files: the same on every machine that serves the same version."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from naiad.repository.changes.fingerprint import walk
from naiad.repository.local.folder_hints import version_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from naiad.config.source import ModelSource


def identity_of(source: ModelSource, version: int, config: Any) -> str:
    """A hash of the completed configuration and of every file of a version, without the files of other versions.

    Reads all of them. ``config`` is a configuration message. A file that cannot be read counts by its name.
    """
    # Maps of a message have no order of their own, and neither have the folders that are walked: both are sorted.
    whole = hashlib.sha256(config.SerializeToString(deterministic=True))
    for name, path in sorted(_files(source, version)):
        # File names need not be UTF-8; no name contains the separator.
        whole.update(f"\0{name}\0".encode("utf-8", "surrogateescape"))
        whole.update(_digest(path))
    return whole.hexdigest()


def _files(source: ModelSource, version: int) -> Iterator[tuple[str, str]]:
    root = source.folder(version)
    for path, _, is_folder in walk(source):
        if is_folder:
            continue
        name = os.path.relpath(path, root)
        if version_number(Path(name).parts[0]) in (None, version):
            yield name, path


def _digest(path: str) -> bytes:
    try:
        # Without O_NONBLOCK the opening of a pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()
    except OSError:
        return b""
