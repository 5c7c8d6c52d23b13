"""A response of an instance to one request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from naiad.errors import NaiadError
from naiad.request import Array
from naiad.worker.ipc.frames import FLAG_FINAL


class Response(NamedTuple):
    """One response of an instance to a request, or the end of its responses.

    Attributes:
        request: the number of the request in a worker process; 0 for an instance in this process.
        outputs: arrays by name; None for an error, or for an end without outputs.
        error: what failed; with ``FLAG_OWN`` it is the model's own response.
        flags: ``FLAG_FINAL`` and others of ``worker/ipc/frames.py``.
        output_ns: the monotonic time at which its outputs were begun, on this side; 0 where it has none.
        is_cancelled: the model ended a request that its caller had given up.
    """

    request: int
    outputs: Mapping[str, Array] | None
    error: NaiadError | None
    flags: int
    output_ns: int = 0
    is_cancelled: bool = False

    @property
    def final(self) -> bool:
        """Whether nothing follows for this request."""
        return bool(self.flags & FLAG_FINAL)
