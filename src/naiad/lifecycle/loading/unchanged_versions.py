"""Which versions of a model a load leaves as they are: those of which nothing has changed, nor of what all share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from naiad.repository.local.folder_hints import version_number

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.read import ReadConfig
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.model_table import VersionEntry
    from naiad.repository.changes.fingerprint import Fingerprint


def kept_versions(read: ReadConfig | None, files: Fingerprint | None, found: Candidate) -> frozenset[int]:
    """The versions whose files are those in ``files``, where no more than the version policy tells the configuration
    of ``found`` from ``read``. None of an ensemble: it costs nothing to load, and its members may differ.
    """
    folder = found.source.directory
    if read is None or files is None or found.files is None or found.folder is not None or folder is None:
        return frozenset()
    wanted = _without_policy(found.read.config)
    if wanted.HasField("ensemble_scheduling") or wanted != _without_policy(read.config):
        return frozenset()
    configs = {str(read.origin.file), str(found.read.origin.file)}
    before, now = (_by_version(rows, folder, configs) for rows in (files, found.files))
    if before.get(None) != now.get(None):
        return frozenset()
    return frozenset(v for v in found.versions if v in before and before[v] == now.get(v))


def take_policy(versions: Iterable[VersionEntry], found: Candidate) -> None:
    """Show the version policy of ``found`` in the configurations of versions that it leaves as they are."""
    for version in versions:
        config = type(version.config)()
        config.CopyFrom(version.config)
        config.ClearField("version_policy")
        config.version_policy.MergeFrom(found.read.config.version_policy)
        if not found.read.config.HasField("version_policy"):
            config.version_policy.latest.num_versions = 1
        version.config = config


def _without_policy(config: Any) -> Any:
    rest = type(config)()
    rest.CopyFrom(config)
    rest.ClearField("version_policy")
    return rest


def _by_version(files: Fingerprint, folder: Path, configs: set[str]) -> dict[int | None, set[tuple[str, int, int]]]:
    """The files by the version in whose folder they lie; None for all others but ``configs``."""
    found: dict[int | None, set[tuple[str, int, int]]] = {}
    start = f"{folder}{os.sep}"
    for row in files:
        if row[0] in configs:
            continue
        first = row[0][len(start) :].split(os.sep)[0] if row[0].startswith(start) else ""
        number = version_number(first)
        if number is not None and row[0] == start + first and number not in found:
            found[number] = set()
        found.setdefault(number, set()).add(row)
    return found
