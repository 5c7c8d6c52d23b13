"""Conversations: so many at a time, each of which sends its next turn once the last one has its response."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from naiad.perf.load.load import NEVER_NS, Load, clock
from naiad.perf.measure.recorder import Recorder
from naiad.perf.steps import StepStream
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import ChannelOpener, EncodedStep, Place, Problem, TargetError, TurnStep


def check_sessions(streams: Sequence[StepStream], concurrency: int) -> None:
    """Compare the data of the user with the conversations that are wanted at a time.

    Raises:
        TargetError: steps belong to no session, or there are too few sessions.
    """
    if not all(step.session_id for stream in streams for step in stream.steps):
        raise TargetError(
            '--session-concurrency needs a "session_id" in each step of --input-data, beside its "payload"; found none'
        )
    if len(streams) < concurrency:
        # The beginning is the reference's, which some users search for.
        raise TargetError(
            f"The input data file contains {len(streams)} unique session IDs, which is fewer than the required session "
            f"concurrency level of {concurrency}. Please add more unique session IDs to the file or lower the session "
            "concurrency level."
        )


def conversations_of(streams: Sequence[Sequence[EncodedStep]]) -> list[list[TurnStep]]:
    """The turns of each conversation.

    Raises:
        TargetError: a step is no turn of one.
    """
    found: list[list[TurnStep]] = []
    for stream in streams:
        turns: list[TurnStep] = [step for step in stream if isinstance(step, TurnStep)]
        if len(turns) < len(stream):
            raise TargetError(
                "--session-concurrency plays chats: expected --endpoint=v1/chat/completions and payloads with a list "
                '"messages"'
            )
        found.append(turns)
    return found


class _Conversation:
    """A conversation that a place plays.

    Attributes:
        at: how many turns were sent.
        request: the one that was made last.
    """

    __slots__ = ("at", "history", "number", "request", "turns")

    def __init__(self, number: int, turns: Sequence[TurnStep]) -> None:
        self.number = number
        self.turns = turns
        self.history: list[Any] = []
        self.at = 0
        self.request: Any = None

    def prepare(self) -> None:
        """Make the request of the next turn."""
        self.request = self.turns[self.at].in_session(self.history)
        self.at += 1

    def take_reply(self) -> Problem | None:
        """Read the response to the last turn; gives what is wrong with it."""
        return self.turns[self.at - 1].take_reply(self.request, self.history)

    @property
    def is_over(self) -> bool:
        """Whether all turns were sent."""
        return self.at == len(self.turns)

    @property
    def delay_ns(self) -> int:
        """How long it rests now."""
        return int(self.turns[self.at - 1].delay_ms * 1e6)


class _PreparedTurns:
    """Hands the request over that the conversation of a place has made."""

    def next(self, place: Place) -> Any:
        """The request of the next turn."""
        return place.holder.request

    def last(self, place: Place) -> Any | None:
        """Services know nothing of conversations: none is left open there."""
        return None

    def sequence_of(self, place: Place) -> int | None:
        """The number of the conversation, counted from 1."""
        number: int = place.holder.number
        return number


class SessionLoad(Load):
    """Plays each conversation once, ``concurrency`` at a time.

    A turn that fails ends its conversation: what would be said next has nothing to refer to.
    """

    def __init__(
        self,
        loop: EpollLoop,
        target: ChannelOpener,
        conversations: Sequence[Sequence[TurnStep]],
        recorder: Recorder,
        concurrency: int,
    ) -> None:
        super().__init__(loop, target, _PreparedTurns(), recorder)
        self._left: Iterator[_Conversation] = (
            _Conversation(number, turns) for number, turns in enumerate(conversations, 1)
        )
        self._resting: list[tuple[int, int, Place]] = []
        self._order = count()
        self._playing = 0
        self._places = self._open_places(concurrency)

    def begin(self, now_ns: int) -> None:
        """Send the first turn of the first conversations."""
        super().begin(now_ns)
        for place in self._places:
            self._play_next(place)
        self._loop.flush()

    def _play_next(self, place: Place) -> None:
        place.holder = next(self._left, None)
        if place.holder is not None:
            self._playing += 1
            self._send_turn(place)

    def _send_turn(self, place: Place) -> None:
        # Before the clock is read: what this process needs to write a long history is not the server's time.
        place.holder.prepare()
        now_ns = clock()
        self.in_flight += 1
        self._start(place, now_ns, now_ns)

    def pump(self, now_ns: int) -> int:
        """Send the turns whose conversations have rested; returns when the next one is due."""
        if not self.is_running:
            return NEVER_NS
        while self._resting and self._resting[0][0] <= now_ns:
            self._send_turn(heapq.heappop(self._resting)[2])
        self._loop.flush()
        return self._resting[0][0] if self._resting else NEVER_NS

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a turn; the next one follows after its delay, or the next conversation at once."""
        self.in_flight -= 1
        played: _Conversation = place.holder
        problem = problem or played.take_reply()
        self._note_end(place, now_ns, problem)
        if not self.is_running or self._loop.failure:
            return
        if problem is None and not played.is_over:
            heapq.heappush(self._resting, (now_ns + played.delay_ns, next(self._order), place))
            return
        self.recorder.sequences += problem is None
        self._playing -= 1
        self._play_next(place)

    @property
    def is_over(self) -> bool:
        """Whether all conversations were played."""
        return self.is_running and not self._playing
