"""Which requests of sequences follow each other: ids, lengths, first and last ones."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from naiad.perf.load.source import SequenceIds, SequenceSource, StepCycle, sequence_length
from naiad.perf.measure.recorder import Recorder
from naiad.perf.settings import LoadPlan
from naiad.perf.target.protocol import Place


@dataclass
class NamedStep:
    """A step whose requests say what they are."""

    name: str

    @property
    def plain(self) -> str:
        return self.name

    def in_sequence(self, sequence: int, *, is_first: bool, is_last: bool) -> str:
        return f"{self.name}{sequence}{'^' * is_first}{'$' * is_last}"


STREAMS = [[NamedStep("a"), NamedStep("b")], [NamedStep("c"), NamedStep("d"), NamedStep("e")]]


def source(plan: LoadPlan, recorder: Recorder | None = None, *, is_given: bool = False) -> SequenceSource:
    return SequenceSource(STREAMS, plan, recorder or Recorder(), is_given=is_given)


def test_steps_take_turns() -> None:
    cycle = StepCycle(STREAMS)
    place = Place()
    assert [cycle.next(place) for _ in range(7)] == ["a", "b", "c", "d", "e", "a", "b"]
    assert cycle.last(place) is None


def test_given_sequences_are_played_as_they_are() -> None:
    recorder = Recorder()
    found = source(LoadPlan(), recorder, is_given=True)
    place = Place()
    assert [found.next(place) for _ in range(6)] == ["a1^", "b1$", "c2^", "d2", "e2$", "a3^"]
    assert recorder.sequences == 2


def test_places_play_sequences_of_their_own() -> None:
    found = source(LoadPlan(sequence_length=2, sequence_length_variation=0))
    one, two = Place(), Place()
    assert [found.next(place) for place in (one, two, two, one, two)] == ["a1^", "c2^", "d2$", "b1$", "a3^"]


def test_short_streams_are_repeated() -> None:
    found = source(LoadPlan(sequence_length=5, sequence_length_variation=0))
    place = Place()
    assert [found.next(place) for _ in range(5)] == ["a1^", "b1", "a1", "b1", "a1$"]


def test_an_open_sequence_can_be_ended_early() -> None:
    found = source(LoadPlan(sequence_length=5, sequence_length_variation=0))
    place = Place()
    assert found.last(place) is None
    found.next(place)
    assert found.last(place) == "b1$"
    assert found.last(place) is None
    assert found.next(place) == "c2^"


def test_lengths_are_spread_evenly_around_the_mean() -> None:
    spread = random.Random(3)
    lengths = [sequence_length(spread, 20, 20) for _ in range(4000)]
    assert (min(lengths), max(lengths)) == (16, 24)
    assert sum(lengths) / len(lengths) == pytest.approx(20, abs=0.2)
    assert {sequence_length(spread, 1, 100) for _ in range(100)} == {1, 2}


def test_ids_are_used_in_order_and_around() -> None:
    ids = SequenceIds((5, 8))
    assert [ids.take(), ids.take(), ids.take()] == [5, 6, 7]
    ids.free(6)
    assert ids.take() == 6
    endless = SequenceIds((1, 0))
    assert [endless.take() for _ in range(3)] == [1, 2, 3]


def test_a_seed_gives_the_same_sequences_again() -> None:
    def played(seed: int) -> list[str]:
        found = source(LoadPlan(sequence_length=6, sequence_length_variation=50, seed=seed))
        place = Place()
        return [found.next(place) for _ in range(60)]

    assert played(1) == played(1)
    assert played(1) != played(2)
