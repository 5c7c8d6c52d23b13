"""Notes what happens to requests at the cost of an append, and folds the notes into histograms once a second."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from naiad.perf.histogram import DurationHistogram
from naiad.perf.measure.records import ReadOutputs, RecordKeeper, no_outputs
from naiad.perf.results import RequestRecord, Second, Window
from naiad.perf.transfer import TransferTimes

DELAYED_NS: Final = 1_000_000
"""A request counts as delayed when it is sent more than a millisecond after its time of the schedule."""

clock = time.monotonic_ns


def wall_offset_ns() -> int:
    """What to add to the monotonic clock to get the time since 1970."""
    return time.time_ns() - clock()


class Recorder:
    """What has happened since the last fold, and the window that folds go to.

    Attributes:
        latencies, first_responses, between_responses, send_delays: durations in ns, as they came.
        times: what channels spent on sending and receiving since the last fold.
        sent, responses, sequences: counts since the last fold.
        completions: successes and failures since the recorder was made.
        window: what is being filled.
        keeper: takes every request; None when nobody asks for them.
    """

    def __init__(
        self,
        *,
        is_streaming: bool = False,
        exported: Sequence[dict[str, object]] | None = None,
        read_outputs: ReadOutputs = no_outputs,
    ) -> None:
        """Make an empty recorder.

        Args:
            is_streaming: whether responses are counted apart from requests.
            exported: what each step holds, when all requests are kept for an export.
            read_outputs: what a response held, from the form in which it is kept.
        """
        self._read_outputs = read_outputs
        self.keeper: RecordKeeper | None = None
        self._is_streaming = is_streaming
        self._exported = exported
        self.latencies = array("q")
        self.first_responses = array("q")
        self.between_responses = array("q")
        self.send_delays = array("q")
        self.times = TransferTimes()
        self.sent = self.responses = self.sequences = 0
        self.errors: Counter[tuple[str, str]] = Counter()
        self.completions = 0
        self._offset = wall_offset_ns()
        self._began = clock()
        self._second_began = self._began
        self.window = Window(0, 0)

    @property
    def activity(self) -> tuple[int, ...]:
        """Numbers of which one changes with every response and every failure."""
        failures, answers = self.errors.total(), len(self.latencies)
        return self.completions, answers, failures, self.responses, self.window.responses

    def begin_window(self, now_ns: int) -> None:
        """Begin an empty window; what was noted and not folded is dropped."""
        self._take(DurationHistogram())
        if self._exported is not None:
            self.keeper = RecordKeeper(self._exported, self._read_outputs)
        self.window = Window(now_ns + self._offset, 0)
        self._began = self._second_began = now_ns

    def fold(self, now_ns: int) -> Second:
        """Move the notes into the window, and sum up what they say of the time since the last fold."""
        found = DurationHistogram()
        errors, count = self._take(found)
        self.window.latency.merge(found)
        second = Second(
            at_s=(self._second_began - self._began) / 1e9,
            requests=count,
            errors=errors,
            p50_us=found.percentile(50) / 1e3,
            p95_us=found.percentile(95) / 1e3,
            p99_us=found.percentile(99) / 1e3,
        )
        if now_ns - self._second_began > 500_000_000 or not self.window.seconds:
            self.window.seconds.append(second)
        else:
            # The rest of a window is no second of its own.
            _extend(self.window.seconds[-1], second)
        self._second_began = now_ns
        return second

    def end_window(self, now_ns: int) -> Window:
        """Fold what is left, close the window, and begin the next one at the same time."""
        self.fold(now_ns)
        done = self.window
        done.ended_ns = now_ns + self._offset
        self.window = Window(done.ended_ns, 0)
        self._began = self._second_began = now_ns
        return done

    def records(self, level: int) -> list[RequestRecord]:
        """Every request since the first window began, when they are kept; ``level`` is the index of the level."""
        return [] if self.keeper is None else self.keeper.records(level, self._offset)

    def _take(self, latency: DurationHistogram) -> tuple[int, int]:
        """Empty the notes into the window and ``latency``; the errors and the successes among them."""
        window, count = self.window, len(self.latencies)
        delays = _drain(self.send_delays)
        latency.add_all(_drain(self.latencies))
        window.first_response.add_all(_drain(self.first_responses))
        window.between_responses.add_all(_drain(self.between_responses))
        window.send_delay.add_all(delays)
        window.delayed += int(np.count_nonzero(delays > DELAYED_NS))
        window.requests += count
        window.responses += self.responses if self._is_streaming else count
        window.sequences += self.sequences
        window.sent += self.sent
        window.output_tokens += self.times.take_tokens()
        send_ns, receive_ns = self.times.take()
        window.send_ns += send_ns
        window.receive_ns += receive_ns
        window.wait_ns += max(latency.total - send_ns - receive_ns, 0)
        errors = self.errors.total()
        window.errors.update(self.errors)
        self.completions += count + errors
        self.errors.clear()
        self.sent = self.responses = self.sequences = 0
        return errors, count


def _drain(notes: array[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.array(notes, np.int64)
    del notes[:]
    return found


def _extend(second: Second, rest: Second) -> None:
    second.requests += rest.requests
    second.errors += rest.errors
