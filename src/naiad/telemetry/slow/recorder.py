"""The recorder of slow requests: keeps the slowest of the last minutes with their times and their causes.

A request that is not among them costs one comparison per batch. Belongs to the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappush, heapreplace
from itertools import chain
from time import monotonic_ns, time
from typing import Any, Final

from naiad.request import BatchTimes, InferRequest
from naiad.telemetry.slow.cause import EXPLAINED, Cause, Course, Runs, begin_of, cause_of
from naiad.telemetry.slow.evidence import Evidence
from naiad.telemetry.slow.watch import ProcessWatch

WINDOW_NS: Final = 300 * 1_000_000_000
"""A request is forgotten after five minutes."""
LEAST_NS: Final = 10_000_000
"""A request that took less is not slow."""
_RUNS: Final = 512
_MAX_ID: Final = 256
_LATER_S: Final = 1.0
"""How much later than it could be a request is forgotten, together with others."""
_MOST_WAITING: Final = 256
"""Requests whose cause is not known yet; a burst of more loses some."""


@dataclass(frozen=True, slots=True)
class Found:
    """A slow request whose cause is not looked for yet: what stops the process is known a moment later.

    Attributes:
        rows, batch_rows: of the request, and of the batch that it ran in.
        runs: the runs of the model since it came, without its own.
        delay_ns: as in ``cause_of``.
    """

    model: str
    version: int
    id: str
    at_s: float
    rows: int
    batch_rows: int
    course: Course
    runs: Runs
    delay_ns: int


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A slow request and its cause; ``begin_ns`` is when it began to wait, and ``place`` the code that made it wait."""

    found: Found
    begin_ns: int
    cause: Cause
    place: str

    @property
    def total_ns(self) -> int:
        """From when it began to wait to its response."""
        return self.found.course.responded_ns - self.begin_ns

    def as_json(self) -> dict[str, Any]:
        """The object of the API; times are microseconds."""
        found, c = self.found, self.found.course
        stages = {
            "before_reading": c.received_ns - self.begin_ns,
            "reading": c.queued_ns - c.received_ns,
            "queue": c.start_ns - c.queued_ns,
            "inputs": c.input_ns - c.start_ns,
            "model": c.infer_ns - c.input_ns,
            "outputs": c.end_ns - c.infer_ns,
            "response": c.responded_ns - c.end_ns,
        }
        return {
            "model": found.model,
            "version": str(found.version),
            "id": found.id,
            "time": round(found.at_s, 3),
            "duration_us": self.total_ns // 1000,
            "cause": str(self.cause),
            "explanation": EXPLAINED[self.cause],
            "place": self.place,
            "rows": found.rows,
            "batch_rows": found.batch_rows,
            "stages_us": {name: max(0, ns) // 1000 for name, ns in stages.items()},
            "client_not_reading_us": c.paused_ns // 1000,
        }


class SlowRequests:
    """The ``max_requests`` slowest requests of all models.

    Attributes:
        threshold_ns: requests that took less are not among them.
        watch: sees what else happens in the process.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self.evidence = Evidence()
        self.watch = ProcessWatch(self.evidence)
        self._found: list[tuple[int, int, SlowRequest]] = []
        self._number = self._waiting = 0
        self._forgets_later = False
        self.threshold_ns = LEAST_NS

    def keep(self, found: Found) -> None:
        """Keep a request instead of the least slow one, as soon as its cause can be told."""
        if self._waiting < _MOST_WAITING:
            self._waiting += 1
            self.watch.later(partial(self._explain, found))

    def _explain(self, found: Found) -> None:
        self._waiting -= 1
        begin_ns = begin_of(found.course, self.evidence)
        cause, place = cause_of(found.course, found.runs, self.evidence, found.delay_ns)
        request = SlowRequest(found, begin_ns, cause, place)
        self._number += 1
        entry = (request.total_ns, self._number, request)
        self._forget()
        if len(self._found) < self._max_requests:
            heappush(self._found, entry)
        elif entry > self._found[0]:
            heapreplace(self._found, entry)
        if len(self._found) >= self._max_requests:
            self.threshold_ns = max(LEAST_NS, self._found[0][0])
        self._forget_later()

    def as_json(self, model: str = "") -> list[dict[str, Any]]:
        """The requests, or those of one model, the slowest first."""
        self._forget()
        found = sorted(self._found, reverse=True)
        return [entry[2].as_json() for entry in found if not model or entry[2].found.model == model]

    def _forget_later(self) -> None:
        """Forget the oldest in its time, though nobody asks: with it the bar for others is lower."""
        if self._forgets_later or not self._found:
            return
        oldest_ns = min(entry[2].found.course.responded_ns for entry in self._found)
        self._forgets_later = True
        self.watch.later(self._forget_now, max(0, oldest_ns + WINDOW_NS - monotonic_ns()) / 1e9 + _LATER_S)

    def _forget_now(self) -> None:
        self._forgets_later = False
        self._forget()
        self._forget_later()

    def _forget(self) -> None:
        oldest_ns = monotonic_ns() - WINDOW_NS
        if any(entry[2].found.course.responded_ns < oldest_ns for entry in self._found):
            self._found = sorted(entry for entry in self._found if entry[2].found.course.responded_ns >= oldest_ns)
            self.threshold_ns = LEAST_NS


class SlowOfModel:
    """Looks for the slow requests of one model version, and remembers its runs."""

    __slots__ = ("_delay_ns", "_model", "_paused", "_requests", "_runs", "_version", "instances")

    def __init__(self, requests: SlowRequests, model: str, version: int, delay_ns: int = 0) -> None:
        """``delay_ns``: how long its batches wait for others."""
        self._requests = requests
        self._model = model
        self._version = version
        self._delay_ns = delay_ns
        self._runs: deque[tuple[int, int]] = deque(maxlen=_RUNS)
        # When the caller of a request stopped reading, and for how long it did not read before.
        self._paused: dict[InferRequest, tuple[int, int]] = {}
        self.instances = 1

    def ran(self, batch: BatchTimes) -> None:
        """Note a run that has ended."""
        self._runs.append((batch.start_ns - batch.gather_ns, batch.end_ns or monotonic_ns()))

    def paused(self, request: InferRequest) -> None:
        """The caller does not read."""
        since, before = self._paused.get(request, (0, 0))
        self._paused[request] = since or monotonic_ns(), before

    def resumed(self, request: InferRequest) -> None:
        """The caller reads again."""
        if request in self._paused:
            since, before = self._paused[request]
            self._paused[request] = 0, before + (monotonic_ns() - since if since else 0)

    def forget(self, request: InferRequest) -> None:
        """A request failed: it may never have run."""
        self._paused.pop(request, None)

    def responded(self, requests: Sequence[InferRequest], batch: BatchTimes, rows: int, reason: str) -> None:
        """Keep those of a batch's requests that were slow; called after their responses."""
        # The oldest comes first.
        if monotonic_ns() - requests[0].received_ns > self._requests.threshold_ns or self._paused:
            self._look(requests, batch, rows, reason)

    def _look(self, requests: Iterable[InferRequest], batch: BatchTimes, rows: int, reason: str) -> None:
        now_ns = monotonic_ns()
        for request in chain.from_iterable(request.singles() for request in requests):
            since, before = self._paused.pop(request, (0, 0))
            if now_ns - request.received_ns <= self._requests.threshold_ns:
                continue
            paused_ns = before + (now_ns - since if since else 0)
            begun_ns = batch.start_ns - batch.gather_ns
            course = Course(
                request.received_ns,
                request.queued_ns,
                begun_ns or now_ns,
                batch.input_ns or now_ns,
                batch.infer_ns or batch.end_ns or now_ns,
                batch.end_ns or now_ns,
                now_ns,
                paused_ns,
            )
            self._requests.keep(
                Found(
                    self._model, self._version, request.id[:_MAX_ID], time(), request.options.rows, rows, course,
                    Runs([span for span in self._runs if span[1] > request.received_ns and span[0] != begun_ns],
                    self.instances), self._delay_ns if reason in ("delay", "preferred_size", "full") else 0,
                )
            )  # fmt: skip
