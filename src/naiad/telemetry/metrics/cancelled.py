"""Calls that ended before their answer, by what ended them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CancelCounts:
    """HTTP requests and gRPC calls that somebody still worked on.

    Attributes:
        client_cancel: the caller cancelled them; gRPC alone can say that.
        disconnect: the caller was gone, or its connection was ended.
        deadline: the caller's deadline passed.
    """

    client_cancel: int = 0
    disconnect: int = 0
    deadline: int = 0

    @property
    def by_reason(self) -> dict[str, int]:
        """The counts under the names that the metric gives them."""
        return {"client_cancel": self.client_cancel, "disconnect": self.disconnect, "deadline": self.deadline}
