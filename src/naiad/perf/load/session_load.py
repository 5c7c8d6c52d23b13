"""Chat sessions: each place plays one after the other, turn by turn, until all have been played once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from naiad.perf.load.load import NEVER_NS, Load, clock
from naiad.perf.measure.recorder import Recorder
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import EncodedStep, PerfTarget, Place, Problem, TargetError


class Turn(EncodedStep, Protocol):
    """A step that can be a turn of a session.

    Attributes:
        session_id: the session that it belongs to; empty for none.
        delay_ns: between its response and the next turn.
        messages: its own; None if it has none.
    """

    session_id: str
    delay_ns: int
    messages: list[dict[str, Any]] | None

    def turn(self, history: Sequence[dict[str, Any]]) -> Any:
        """The request with all messages of the session so far."""
        ...

    def reply(self, responses: Sequence[Any]) -> dict[str, Any]:
        """The message in the responses to it."""
        ...


class _LiveSession:
    """A session that a place plays.

    Attributes:
        step: the present turn; None when all are over.
        sent: its request.
    """

    __slots__ = ("_history", "_left", "sent", "step")

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._left = iter(turns)
        self._history: list[dict[str, Any]] = []
        self.step: Turn | None = next(self._left, None)
        self.sent: Any = None

    def request(self) -> Any:
        """The request of the present turn."""
        assert self.step is not None, "a session that is over has no turn"
        self._history += self.step.messages or []
        self.sent = self.step.turn(self._history)
        return self.sent

    def take(self, responses: Sequence[Any]) -> int:
        """Go on with the next turn; gives how long it waits, in ns."""
        step, self.step = self.step, next(self._left, None)
        if step is None:
            return 0
        self._history.append(step.reply(responses))
        return step.delay_ns


class _LiveSessions:
    """The requests of the sessions that places play."""

    def next(self, place: Place) -> Any:
        """The request of the present turn of a place."""
        return place.holder.request()

    def last(self, place: Place) -> Any | None:
        """The service keeps nothing open."""
        return None

    def sequence_of(self, place: Place) -> int | None:
        """Sessions are no sequences."""
        return None


class SessionLoad(Load):
    """Plays so many sessions at a time. One whose request fails ends with it.

    Raises:
        TargetError: there are fewer sessions, or a step is no turn of one.
    """

    def __init__(
        self, loop: EpollLoop, target: PerfTarget, recorder: Recorder, sessions: Sequence[Sequence[Turn]], count: int
    ) -> None:
        super().__init__(loop, target, _LiveSessions(), recorder)
        _check(sessions, count)
        self._left: Iterator[Sequence[Turn]] = iter(sessions)
        self._waiting: deque[tuple[int, Place]] = deque()
        self._places = self._open_places(count)

    def begin(self, now_ns: int) -> None:
        """Begin the first sessions."""
        super().begin(now_ns)
        for place in self._places:
            self._begin_session(place)
        self._loop.flush()

    def _begin_session(self, place: Place) -> None:
        turns = next(self._left, None)
        if turns is not None and self.is_running and not self._loop.failure:
            place.holder = _LiveSession(turns)
            self.in_flight += 1
            self._send(place)

    def _send(self, place: Place) -> None:
        now_ns = clock()
        place.response_times, place.responses = [], []
        self._start(place, now_ns, now_ns)

    def completed(self, place: Place, now_ns: int, problem: Problem | None) -> None:
        """Note the end of a turn; the next one follows after its delay."""
        session: _LiveSession = place.holder
        responses = place.responses or [session.sent.last_response]
        self._note_end(place, now_ns, problem)
        delay_ns = session.take(responses)
        if problem is None and session.step is not None and self.is_running and not self._loop.failure:
            if delay_ns:
                self._wait(now_ns + delay_ns, place)
            else:
                self._send(place)
            return
        self.in_flight -= 1
        self._begin_session(place)

    def _wait(self, until_ns: int, place: Place) -> None:
        """Keep the places that wait in the order in which their waits end."""
        self._waiting.append((until_ns, place))
        self._waiting = deque(sorted(self._waiting, key=lambda entry: entry[0]))

    def pump(self, now_ns: int) -> int:
        """Send the turns whose delay is over; returns when the next one is."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ns:
            self._send(waiting.popleft()[1])
        return self._waiting[0][0] if self._waiting else NEVER_NS

    @property
    def waits(self) -> bool:
        """Whether a response is due: not while all sessions wait for their next turn."""
        return self.in_flight > len(self._waiting)

    def stop(self) -> None:
        """Send nothing more; what waits is forgotten."""
        super().stop()
        self.in_flight -= len(self._waiting)
        self._waiting.clear()

    @property
    def is_over(self) -> bool:
        """Whether all sessions have been played."""
        return self.is_running and not self.in_flight


def _check(sessions: Sequence[Sequence[Turn]], count: int) -> None:
    steps = [step for turns in sessions for step in turns]
    if not all(step.session_id for step in steps):
        raise TargetError('--session-concurrency needs a "session_id" in every step of --input-data')
    if any(step.messages is None for step in steps):
        raise TargetError('--session-concurrency needs payloads with "messages", those of v1/chat/completions')
    if len(sessions) < count:
        raise TargetError(
            f"The input data file contains {len(sessions)} unique session IDs, which is fewer than the required "
            f"session concurrency level of {count}. Please add more unique session IDs to the file or lower the "
            "session concurrency level."
        )
