"""What the server knows about each model and each of its versions. Changed by the event loop alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from naiad.errors import InternalError, NaiadError
from naiad.execution.model import LoadedModel
from naiad.lifecycle.states import NEXT, ModelState


@dataclass(slots=True)
class VersionEntry:
    """One version of a model. ``config`` is its completed configuration message once there is one."""

    version: int
    state: ModelState = ModelState.UNKNOWN
    reason: str = ""
    model: LoadedModel | None = None
    config: Any = None

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
    """One model by name. ``problem`` says why it has no versions; ``serving`` answers requests that name no version."""

    name: str
    versions: dict[int, VersionEntry] = field(default_factory=dict)
    problem: NaiadError | None = None
    serving: LoadedModel | None = None

    def choose_serving(self) -> None:
        """Serve the highest version that is ready."""
        ready = [v for v in self.versions.values() if v.state is ModelState.READY]
        self.serving = max(ready, key=lambda v: v.version).model if ready else None
