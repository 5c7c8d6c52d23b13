"""From the options to the load of a level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from naiad.perf.load.closed_loop import ClosedLoop
from naiad.perf.load.exported import exported_outputs
from naiad.perf.load.load import Load
from naiad.perf.load.open_loop import OpenLoop, SequenceOpenLoop
from naiad.perf.load.periodic import PeriodicLoad
from naiad.perf.load.schedules import (
    constant_schedule,
    fixed_schedule,
    interval_schedule,
    mean_rate,
    poisson_schedule,
    read_intervals,
)
from naiad.perf.load.sessions import SessionLoad, conversations_of
from naiad.perf.load.share import WHOLE, Share
from naiad.perf.load.source import RequestSource, SequenceSource, StepCycle
from naiad.perf.measure.recorder import Recorder
from naiad.perf.results import LoadLevel, LoadMode
from naiad.perf.settings import PerfSettings
from naiad.perf.steps import ModelDescription, StepStream
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import EncodedStep, PerfTarget


class LoadFactory:
    """Makes the load of each level of a run.

    Args:
        timestamps_ms: of the steps of a fixed schedule.

    Raises:
        TargetError: the file of intervals cannot be read, or steps are no turns of chat sessions.
    """

    def __init__(
        self,
        settings: PerfSettings,
        target: PerfTarget,
        model: ModelDescription,
        encoded: Sequence[Sequence[EncodedStep]],
        timestamps_ms: Sequence[float],
    ) -> None:
        self._settings = settings
        self._plan = settings.load
        self._target = target
        self._model = model
        self._encoded = encoded
        self._timestamps_ms = timestamps_ms
        self._intervals_us: list[float] = []
        is_session = self._plan.mode is LoadMode.SESSION_CONCURRENCY
        self._conversations = conversations_of(encoded) if is_session else []
        if self._plan.mode is LoadMode.CUSTOM_INTERVALS and self._plan.intervals_file is not None:
            self._intervals_us = read_intervals(self._plan.intervals_file)

    def level(self, value: float) -> LoadLevel:
        """The level of a value of the range."""
        if self._plan.mode is LoadMode.CUSTOM_INTERVALS:
            return LoadLevel(self._plan.mode, mean_rate(self._intervals_us))
        return LoadLevel(self._plan.mode, value)

    @property
    def is_sequence(self) -> bool:
        """Whether requests belong to sequences."""
        return self._model.is_sequence

    def recorder(self, exported: Sequence[dict[str, object]] | None) -> Recorder:
        """What notes the requests of a level.

        Args:
            exported: what each step holds, when all requests are kept for an export.
        """
        read = partial(exported_outputs, self._target)
        return Recorder(is_streaming=self._target.is_streaming, exported=exported, read_outputs=read)

    def open(self, loop: EpollLoop, recorder: Recorder, level: LoadLevel, share: Share = WHOLE) -> Load:
        """The load of a level, or a share of it, with its connections open.

        Raises:
            TargetError: the server does not take the connections.
        """
        target, plan = self._target, self._plan
        source = self._source(recorder, share)
        if level.mode is LoadMode.CONCURRENCY:
            total = share.count(self._settings.measure.total_requests)
            return ClosedLoop(loop, target, source, recorder, share.count(int(level.value)), total)
        if level.mode is LoadMode.PERIODIC_CONCURRENCY:
            levels = plan.levels
            start, end, step = int(levels.start), int(levels.end), int(levels.step)
            return PeriodicLoad(loop, target, source, recorder, start, end, step, plan.request_period)
        if level.mode is LoadMode.SESSION_CONCURRENCY:
            return SessionLoad(loop, target, self._conversations, recorder, int(level.value))
        schedule = share.turns(self._schedule(level))
        if self._model.is_sequence:
            return SequenceOpenLoop(loop, target, source, recorder, schedule, share.count(plan.num_of_sequences))
        return OpenLoop(loop, target, source, recorder, schedule)

    def _source(self, recorder: Recorder, share: Share) -> RequestSource:
        if not self._model.is_sequence:
            return StepCycle(self._encoded, share)
        # Without a length of its own, a sequence of the user's data is as long as it is.
        is_given = bool(self._settings.input.paths) and "sequence-length" not in self._settings.given
        return SequenceSource(self._encoded, self._plan, recorder, is_given=is_given, share=share)

    def _schedule(self, level: LoadLevel) -> Iterator[int]:
        schedule = self._endless_schedule(level)
        total = self._settings.measure.total_requests
        return islice(schedule, total) if total else schedule

    def _endless_schedule(self, level: LoadLevel) -> Iterator[int]:
        if level.mode is LoadMode.FIXED_SCHEDULE:
            return fixed_schedule(sorted(self._timestamps_ms))
        if level.mode is LoadMode.CUSTOM_INTERVALS:
            return interval_schedule(self._intervals_us)
        if self._plan.distribution == "poisson":
            return poisson_schedule(level.value, self._plan.seed)
        return constant_schedule(level.value)


def encode_streams(target: PerfTarget, streams: Sequence[StepStream]) -> list[list[EncodedStep]]:
    """The bytes of all steps.

    Raises:
        TargetError: the protocol cannot carry one of them.
    """
    numbers = iter(range(sum(len(stream.steps) for stream in streams)))
    return [[target.encode(step, next(numbers)) for step in stream.steps] for stream in streams]


def timestamps_of(streams: Sequence[StepStream]) -> list[float]:
    """When the steps of a fixed schedule are sent, in ms from the start."""
    return [step.timestamp_ms for stream in streams for step in stream.steps if step.timestamp_ms is not None]
