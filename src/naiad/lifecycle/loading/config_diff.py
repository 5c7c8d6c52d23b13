"""What differs between two loads of a model: nothing but its instance groups, or only some of its versions.

Both look at the configurations as written and at the fingerprints of the files, the configurations' own files left out:
these are compared by what they say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from naiad.repository.local.folder_hints import version_number

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.read import ReadConfig
    from naiad.lifecycle.state.candidate import Candidate
    from naiad.lifecycle.state.model_table import ModelEntry, VersionEntry
    from naiad.repository.changes.fingerprint import Fingerprint


def only_groups_differ(entry: ModelEntry, found: Candidate) -> bool:
    """Whether ``found`` differs from what serves in ``instance_group`` at most.

    A configuration that callers were shown, completed, is the same as the one it was made from.
    """
    read = entry.read
    compared = _files_of(read, entry.files, found)
    if read is None or compared is None:
        return False
    if read.config.HasField("sequence_batching"):
        # Sequences stay with their instances: those of another load take the new ones.
        return False
    if read.config.HasField("ensemble_scheduling"):
        # Ensembles have no instances, and cost nothing to load.
        return False
    if {v.version for v in entry.ready()} != set(found.versions):
        return False
    before, now = compared
    if before != now:
        return False
    wanted = _without(found.read.config, "instance_group")
    if wanted == _without(read.config, "instance_group"):
        return True
    return all(wanted == _without(version.config, "instance_group") for version in entry.ready())


def unchanged_versions(read: ReadConfig | None, files: Fingerprint | None, found: Candidate) -> frozenset[int]:
    """The versions that a load of ``found`` leaves as they are, of a model loaded with ``read`` from ``files`` before.

    Their files are the same, those of the model too, and its configuration differs in the version policy at most. None
    of an ensemble: it costs nothing to load, and its members may differ.
    """
    folder = found.source.directory
    compared = _files_of(read, files, found)
    if read is None or compared is None or folder is None:
        return frozenset()
    wanted = _without(found.read.config, "version_policy")
    if wanted.HasField("ensemble_scheduling") or wanted != _without(read.config, "version_policy"):
        return frozenset()
    before, now = (_by_version(rows, folder) for rows in compared)
    # Files beside the version folders, such as labels, belong to every version.
    if before.get(None) != now.get(None):
        return frozenset()
    return frozenset(v for v in found.versions if v in before and before[v] == now.get(v))


def take_policy(versions: Iterable[VersionEntry], found: Candidate) -> None:
    """Show the version policy of ``found`` in the configurations of versions that it leaves as they are."""
    for version in versions:
        config = _without(version.config, "version_policy")
        config.version_policy.MergeFrom(found.read.config.version_policy)
        # The default that ``normalize`` fills in.
        if not found.read.config.HasField("version_policy"):
            config.version_policy.latest.num_versions = 1
        version.config = config


def _files_of(
    read: ReadConfig | None, files: Fingerprint | None, found: Candidate
) -> tuple[Fingerprint, Fingerprint] | None:
    """The files of both loads without their configurations; None where they do not tell two loads apart."""
    if read is None or files is None or found.files is None or found.folder is not None:
        return None
    configs = {str(read.origin.file), str(found.read.origin.file)}
    before, now = (frozenset(row for row in rows if row[0] not in configs) for rows in (files, found.files))
    return before, now


def _without(config: Any, name: str) -> Any:
    """A copy of a configuration message without one of its fields."""
    rest = type(config)()
    rest.CopyFrom(config)
    rest.ClearField(name)
    return rest


def _by_version(files: Fingerprint, folder: Path) -> dict[int | None, set[tuple[str, int, int]]]:
    """The files by the version in whose folder they lie; None for all others."""
    found: dict[int | None, set[tuple[str, int, int]]] = {}
    start = f"{folder}{os.sep}"
    for row in files:
        first = row[0][len(start) :].split(os.sep)[0] if row[0].startswith(start) else ""
        number = version_number(first)
        if number is not None and row[0] == start + first and number not in found:
            found[number] = set()
        found.setdefault(number, set()).add(row)
    return found
