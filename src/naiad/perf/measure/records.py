"""Every request of a run, for a profile export."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence

from naiad.perf.results import RequestRecord

ReadOutputs = Callable[[Hashable], dict[str, object]]
"""Gives the outputs of a response by name, from the form in which it was kept."""


def no_outputs(response: Hashable) -> dict[str, object]:
    """Of responses that nobody looks at."""
    return {}


class RecordKeeper:
    """Keeps the times of requests in as few bytes as possible until records are made of them.

    Args:
        inputs: what each step holds, by its index.
        read_outputs: what a response held. Responses that are the same are kept and read once.
    """

    def __init__(self, inputs: Sequence[dict[str, object]] = (), read_outputs: ReadOutputs = no_outputs) -> None:
        self._inputs = inputs
        self._read_outputs = read_outputs
        self._known: dict[Hashable, int] = {}
        self._responses: list[tuple[int, ...]] = []
        self._starts = array("q")
        self._ends = array("q")
        self._rows = array("q")
        self._several: dict[int, tuple[int, ...]] = {}
        self._sequences: dict[int, int] = {}
        self._failures: set[int] = set()

    def keep(
        self,
        began_ns: int,
        ended_ns: int,
        step: int,
        response_times: Sequence[int] | None,
        sequence: int | None,
        responses: Sequence[Hashable] = (),
        *,
        is_success: bool,
    ) -> None:
        """Keep one request; times are on the monotonic clock.

        Args:
            response_times: of all of its responses; None when there is one, at ``ended_ns``.
            responses: what they held.
        """
        number = len(self._starts)
        self._starts.append(began_ns)
        self._ends.append(ended_ns)
        self._rows.append(step)
        self._responses.append(self._numbered(responses))
        if response_times is not None:
            self._several[number] = tuple(response_times)
        if sequence is not None:
            self._sequences[number] = sequence
        if not is_success:
            self._failures.add(number)

    def _numbered(self, responses: Sequence[Hashable]) -> tuple[int, ...]:
        known = self._known
        return tuple(known.setdefault(response, len(known)) for response in responses)

    def records(self, level: int, offset_ns: int) -> list[RequestRecord]:
        """A record of each request.

        Args:
            level: the index of the level in the report.
            offset_ns: what to add to the monotonic clock.
        """
        found = []
        outputs = [self._read_outputs(response) for response in self._known]
        for number, (start, end, row) in enumerate(zip(self._starts, self._ends, self._rows, strict=True)):
            times = self._several.get(number, (end,))
            found.append(
                RequestRecord(
                    level=level,
                    timestamp_ns=start + offset_ns,
                    response_timestamps_ns=tuple(moment + offset_ns for moment in times),
                    sequence_id=self._sequences.get(number),
                    inputs=self._inputs[row] if row < len(self._inputs) else {},
                    outputs=tuple(outputs[response] for response in self._responses[number]),
                    is_success=number not in self._failures,
                )
            )
        return found
