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
    """A model that can be tried.

    Attributes:
        source: where it lies, or where its agents have put it.
        read: its configuration as written.
        versions: those to be loaded.
        files: the repository's files that it comes from; None when it comes from the files of a request.
        folder: what has to be given back, held by whoever has the candidate.
    """

    source: ModelSource
    read: ReadConfig
    versions: tuple[int, ...]
    files: Fingerprint | None
    folder: ModelFolder | None = None
