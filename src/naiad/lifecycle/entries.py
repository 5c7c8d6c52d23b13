"""What the server knows about each model and each of its versions. Changed by the event loop alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import InternalError, NaiadError
from naiad.execution.model import LoadedModel
from naiad.lifecycle.states import NEXT, ModelState

if TYPE_CHECKING:
    from naiad.lifecycle.asking import Asker
    from naiad.repository.catalog import Held
    from naiad.repository.fingerprint import Fingerprint

UNLOADED = "unloaded"
"""The reason of a version that was unloaded because somebody wanted so."""
MAX_GONE: Final = 64
"""How many versions of a model are remembered of which nothing is left; requests may bring ever new numbers."""


@dataclass(slots=True)
class VersionEntry:
    """One version of a model.

    Attributes:
        config: its completed configuration message once there is one.
        asker: who it is when it asks for models to be loaded.
        folder: what keeps the files that it was loaded from, if anything has to.
    """

    version: int
    state: ModelState = ModelState.UNKNOWN
    reason: str = ""
    model: LoadedModel | None = None
    config: Any = None
    asker: Asker | None = None
    folder: Held | None = None

    @property
    def was_unloaded(self) -> bool:
        """It is not there, or soon will not be, because somebody wanted so."""
        if self.state is ModelState.UNLOADING:
            return True
        return self.state is ModelState.UNAVAILABLE and self.reason == UNLOADED

    def become(self, state: ModelState, reason: str = "") -> None:
        """Move on to ``state``.

        Raises:
            InternalError: that state may not follow the present one.
        """
        if state not in NEXT[self.state]:
            raise InternalError(f"version {self.version} cannot go from {self.state!r} to {state!r}")
        self.state = state
        self.reason = reason


@dataclass(slots=True)
class ModelEntry:
    """One model by name.

    Attributes:
        problem: why it has no versions.
        serving: answers requests that name no version.
        files: those of the repository that it was loaded from; None when they do not tell whether it is up to date.
        unloading: how many earlier copies still finish their requests.
    """

    name: str
    versions: dict[int, VersionEntry] = field(default_factory=dict)
    problem: NaiadError | None = None
    serving: LoadedModel | None = None
    files: Fingerprint | None = None
    unloading: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing of it is loaded, or about to be loaded or unloaded."""
        return not self.unloading and all(v.state is ModelState.UNAVAILABLE for v in self.versions.values())

    def ready(self) -> list[VersionEntry]:
        """The versions that serve, ascending."""
        return sorted((v for v in self.versions.values() if v.state is ModelState.READY), key=lambda v: v.version)

    def forget_gone(self) -> None:
        """Forget the lowest of too many versions that were unloaded."""
        gone = sorted(
            v.version for v in self.versions.values() if v.state is ModelState.UNAVAILABLE and v.reason == UNLOADED
        )
        for version in gone[:-MAX_GONE]:
            del self.versions[version]

    def choose_serving(self) -> None:
        """Serve the highest version that is ready."""
        ready = self.ready()
        self.serving = ready[-1].model if ready else None
