"""Which request comes next: steps that take turns, or the steps of sequences."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any, Protocol

from naiad.perf.load.share import WHOLE, Share
from naiad.perf.measure.recorder import Recorder
from naiad.perf.settings import LoadPlan
from naiad.perf.target.protocol import EncodedStep, Place


class RequestSource(Protocol):
    """Chooses requests."""

    def next(self, place: Place) -> Any:
        """The next request of a place."""
        ...

    def last(self, place: Place) -> Any | None:
        """The request that ends what a place has begun; None when nothing is open."""
        ...

    def sequence_of(self, place: Place) -> int | None:
        """The id of the sequence that the last request of a place belongs to; None for no sequence."""
        ...


class StepCycle:
    """All steps of all streams take turns, whoever asks."""

    def __init__(self, streams: Sequence[Sequence[EncodedStep]], share: Share = WHOLE) -> None:
        requests = [step.plain for stream in streams for step in stream]
        endless = itertools.cycle(requests)
        self._next = (endless if share.of == 1 else share.turns(endless)).__next__

    def next(self, place: Place) -> Any:
        """The next request."""
        return self._next()

    def last(self, place: Place) -> Any | None:
        """Nothing is left open."""
        return None

    def sequence_of(self, place: Place) -> int | None:
        """Requests belong to no sequence."""
        return None


class _LiveSequence:
    """A sequence that a place plays."""

    __slots__ = ("at", "id", "length", "steps")

    def __init__(self, number: int, steps: Sequence[EncodedStep], length: int) -> None:
        self.id = number
        self.steps = steps
        self.length = length
        self.at = 0


class SequenceSource:
    """Each place plays one sequence after the other.

    Args:
        is_given: whether the streams are the sequences of the user's data, whose lengths then count.
        share: the sequences that are played here; their ids are those of no other share.
    """

    def __init__(
        self,
        streams: Sequence[Sequence[EncodedStep]],
        plan: LoadPlan,
        recorder: Recorder,
        *,
        is_given: bool,
        share: Share = WHOLE,
    ) -> None:
        self._streams = share.turns(itertools.cycle(streams))
        self._plan = plan
        self._recorder = recorder
        self._is_given = is_given
        # Of its own in each process: else all of them would play the same lengths at the same time.
        self._random = random.Random(plan.seed + share.index)
        self._ids = SequenceIds(plan.sequence_id_range, share)

    def next(self, place: Place) -> Any:
        """The next request of the sequence of a place; of a new one when that is over."""
        live: _LiveSequence | None = place.holder
        if live is None or live.at == live.length:
            if live is not None:
                self._recorder.sequences += 1
                self._ids.free(live.id)
            live = place.holder = self._begin()
        return self._request(live, is_last=live.at == live.length - 1)

    def last(self, place: Place) -> Any | None:
        """The request that ends the sequence of a place before its time; None when none is open."""
        live: _LiveSequence | None = place.holder
        if live is None or live.at == live.length:
            return None
        request = self._request(live, is_last=True)
        live.at = live.length
        return request

    def sequence_of(self, place: Place) -> int | None:
        """The id of the sequence that a place plays."""
        live: _LiveSequence | None = place.holder
        return None if live is None else live.id

    def _request(self, live: _LiveSequence, *, is_last: bool) -> Any:
        step = live.steps[live.at % len(live.steps)]
        request = step.in_sequence(live.id, is_first=live.at == 0, is_last=is_last)
        live.at += 1
        return request

    def _begin(self) -> _LiveSequence:
        steps = next(self._streams)
        return _LiveSequence(self._ids.take(), steps, len(steps) if self._is_given else self._length())

    def _length(self) -> int:
        return sequence_length(self._random, self._plan.sequence_length, self._plan.sequence_length_variation)


def sequence_length(source: random.Random, length: int, variation_percent: float) -> int:
    """The length of a sequence: evenly spread around ``length`` by so many percent, and at least 1."""
    spread = length * variation_percent / 100
    return max(1, round(source.uniform(length - spread, length + spread)))


class SequenceIds:
    """Ids of sequences, in order and around again; none is used by two sequences at a time while others are free.

    Args:
        id_range: the first id, and the one behind the last; 0 for no end.
        share: of the range.
    """

    def __init__(self, id_range: tuple[int, int], share: Share = WHOLE) -> None:
        first, self._end = id_range
        self._first = first + share.index
        self._step = share.of
        self._next = self._first
        self._used: set[int] = set()

    def take(self) -> int:
        """An id."""
        # One more than are in use: among so many there is a free one, unless the range has none.
        for _ in range(len(self._used) + 1):
            number = self._next
            self._next += self._step
            if self._end and self._next >= self._end:
                self._next = self._first
            if number not in self._used:
                break
        self._used.add(number)
        return number

    def free(self, number: int) -> None:
        """Give an id back."""
        self._used.discard(number)
