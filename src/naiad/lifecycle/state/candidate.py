"""A model that can be loaded: its files, its configuration and its versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from naiad.config.read import ReadConfig
    from naiad.config.source import ModelSource
    from naiad.repository.changes.fingerprint import Fingerprint
    from naiad.repository.local.temporary_folder import ModelFolder


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model and its files as one load finds them.

    Attributes:
        source: its folder, or the folder that its agents have put it into.
        read: its configuration as written.
        versions: the versions that its policy chooses.
        files: the fingerprint of the repository's files; None for the files of a request.
        folder: a temporary folder that is released after the load; None for a model that stays where it is.
    """

    source: ModelSource
    read: ReadConfig
    versions: tuple[int, ...]
    files: Fingerprint | None
    folder: ModelFolder | None = None
