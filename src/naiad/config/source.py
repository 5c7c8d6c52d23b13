"""The place of a model on disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelSource:
    """One model as found in a repository, or one model file (or SavedModel) that is served on its own.

    ``versions`` maps version numbers to their folders (for a single file: 1 to the folder that holds it). Exactly one
    of ``directory`` and ``single_file`` is set. ``config_file`` is None when the model brings no configuration.
    ``namespace`` is its repository with ``--model-namespacing``, else "". With ``is_renamed`` its name is
    neither that of its folder nor that of its configuration.
    """

    name: str
    directory: Path | None = None
    versions: Mapping[int, Path] = field(default_factory=dict)
    config_file: Path | None = None
    single_file: Path | None = None
    namespace: str = ""
    is_renamed: bool = False

    @property
    def key(self) -> str:
        """The key of the model: its name, behind its namespace where there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def folder(self, version: int) -> Path:
        """The model's folder; for a single file the folder that contains it."""
        return self.directory if self.directory is not None else self.versions[version]
