"""A group of requests that a front-end process has read and checked, in the engine's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from naiad.errors import NaiadError
from naiad.execution.batching.request_group import GroupOptions, RequestGroup
from naiad.request import Array, InferRequest, RequestOptions
from naiad.server.fronts.relayed_request import RelayedRequest, Responder, Row

if TYPE_CHECKING:
    from naiad.execution.model.group_queue import GroupQueue
    from naiad.server.fronts.tensors import TensorLayout


class GroupResponder(Responder, Protocol):
    """What sends the responses of groups and their requests."""

    def respond_group(self, marks: Sequence[int], outputs: Mapping[str, Array]) -> None:
        """Send each of these requests its row of the outputs."""


class RelayedGroup(RequestGroup):
    """It responds over the link to the front-end process of its requests.

    Args:
        options: of the group.
        kind, single_options: the class and the options of each of its requests.
        tensors: the inputs of each: one row, and no strings.
        rows: the requests; none of their inputs lies in shared memory.
        queue: where it is submitted.

    Attributes:
        queue: as above.
    """

    __slots__ = ("_kind", "_responder", "_rows", "_single_options", "_singles", "_tensors", "queue")

    def __init__(
        self,
        responder: GroupResponder,
        options: GroupOptions,
        kind: type[RelayedRequest],
        single_options: RequestOptions,
        tensors: Sequence[TensorLayout],
        rows: Sequence[Row],
        queue: GroupQueue,
    ) -> None:
        # Not through super(): this stands in the path of many requests.
        self.options = options
        self.is_taken = False
        self.queue = queue
        self._responder = responder
        self._kind = kind
        self._single_options = single_options
        self._tensors = tensors
        self._singles: list[RelayedRequest] | None = None
        self._fill(rows)

    def _fill(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        _, self.id, self.received_ns, self.queued_ns, _, _ = rows[0]
        self.held_bytes = sum([row[4] for row in rows])
        columns = zip(*[row[5] for row in rows], strict=True)
        self.inputs = {
            name: np.ndarray((len(rows), *shape[1:]), numpy, b"".join(column))
            for (name, _, numpy, shape), column in zip(self._tensors, columns, strict=True)
        }

    @property
    def marks(self) -> list[int]:
        """The numbers of its requests in the front-end process."""
        return [row[0] for row in self._rows]

    def note_arrival(self, received: list[int], queued: list[int]) -> None:
        received += [row[2] for row in self._rows]
        queued += [row[3] for row in self._rows]

    def singles(self) -> Sequence[RelayedRequest]:
        if self._singles is None:
            self._singles = [self._single(at, row) for at, row in enumerate(self._rows)]
        return self._singles

    def _single(self, at: int, row: Row) -> RelayedRequest:
        mark, request_id, received_ns, queued_ns, held_bytes, _ = row
        inputs = {name: array[at : at + 1] for name, array in self.inputs.items()}
        return self._kind(
            self._responder, mark, self._single_options, inputs, request_id, received_ns, queued_ns, held_bytes
        )

    def single(self, mark: int) -> RelayedRequest:
        """Its request with a number."""
        return next(request for request in self.singles() if request.mark == mark)

    def leave(self, request: InferRequest) -> None:
        at = self.singles().index(request)
        self.options = GroupOptions(self._single_options, len(self._rows) - 1)
        self._singles = None
        self._fill([*self._rows[:at], *self._rows[at + 1 :]])

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is None:
            self._responder.respond_group(self.marks, outputs)
            return
        for single in self.singles():
            single.respond({}, error)
