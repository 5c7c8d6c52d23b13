"""One load level: the load is started, windows are taken until they agree, and what was in flight is waited for."""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from naiad.perf.load.host import cores
from naiad.perf.load.load import MeasuredLoad
from naiad.perf.load.observer import Observer
from naiad.perf.load.stall import StallWatch
from naiad.perf.load.stop import Stop
from naiad.perf.measure.merge import is_client_bottleneck, merge_windows
from naiad.perf.measure.recorder import Recorder
from naiad.perf.measure.stability import WINDOWS, best_windows, is_stable, latency_of, unstable_reason
from naiad.perf.progress import Progress
from naiad.perf.results import LevelResult, LoadLevel, Window
from naiad.perf.settings import MeasureSettings
from naiad.perf.target.loop import EpollLoop
from naiad.perf.target.protocol import TargetError

DRAIN_S: Final = 10.0
"""How long requests in flight are waited for behind the last window, in seconds."""
_TURN_NS: Final = 200_000_000
_SECOND_NS: Final = 1_000_000_000

clock = time.monotonic_ns


class LevelRun:
    """Measures one level.

    Args:
        loop: the loop of the load and the observer.
        stop: set when the user stops the run.
        is_single: whether the load has an end, so that there is one window from its start to its end.
        limit_ms: the latency that ends a level early; 0 for none.
        first_ns: how long the first response of the run took.
    """

    def __init__(
        self,
        loop: EpollLoop,
        load: MeasuredLoad,
        observer: Observer,
        settings: MeasureSettings,
        level: LoadLevel,
        batch_size: int,
        progress: Progress,
        stop: Stop,
        *,
        is_single: bool,
        limit_ms: float = 0,
        first_ns: int = 0,
    ) -> None:
        self._loop = loop
        self._load = load
        self._observer = observer
        self._settings = settings
        self._level = level
        self._batch_size = batch_size
        self._progress = progress
        self._stop = stop
        self._is_single = is_single
        self._limit_ms = limit_ms
        self._windows: list[Window] = []
        self._processor = load.processor_time()
        self._stall = StallWatch(first_ns, clock())

    def run(self) -> LevelResult:
        """Measure.

        Raises:
            TargetError: the server cannot be reached any more, or answers nothing but errors, and no window is there.
        """
        load = self._load
        self._progress.level_began(self._level)
        if self._is_single:
            # The first request belongs to the window, so the server's counts have to be there before it.
            self._observer.mark()
            self._observer.settle()
            self._begin_window()
            load.begin(clock())
        else:
            load.begin(clock())
            self._warm_up()
            self._begin_window()
            self._observer.mark()
        try:
            while self._goes_on():
                self._take_window()
        finally:
            load.stop()
        self._drain()
        self._observer.finish(self._windows)
        load.close()
        return self._result()

    # Stages

    def _warm_up(self) -> None:
        began = clock()
        tick = began + _SECOND_NS
        while not self._load.is_warm and self._can_run():
            self._turn(clock() + _TURN_NS)
            now = clock()
            if now >= tick:
                # Processes of the generator tell what they have heard only when they are asked.
                self._load.recorder.fold(now)
                self._look_for_stall(now)
                tick += _SECOND_NS
            if not self._load.is_warm:
                self._progress.waiting((now - began) / 1e9)

    def _drain(self) -> None:
        if self._stop.is_wanted and self._load.in_flight > 0:
            self._progress.stopping(self._load.in_flight)
        end = clock() + int(DRAIN_S * 1e9)
        while self._load.in_flight > 0 and clock() < end and not self._loop.failure:
            self._loop.turn(clock() + 50_000_000)

    def _can_run(self) -> bool:
        return not self._stop.is_wanted and not self._loop.failure

    def _turn(self, until_ns: int) -> None:
        now = clock()
        due = min(self._load.pump(now), self._observer.pump(now), until_ns, now + _TURN_NS)
        self._loop.turn(due)

    def _look_for_stall(self, now_ns: int) -> None:
        load = self._load
        if self._stall.is_stalled(load.recorder.activity, now_ns, waits=load.waits):
            limit_s = self._stall.limit_ns / 1e9
            self._loop.fail(f"the server has stopped responding: no response came for {limit_s:.0f} s")

    # Windows

    def _goes_on(self) -> bool:
        windows, settings = self._windows, self._settings
        if not self._can_run():
            return False
        if not windows:
            return True
        if self._is_single or self._load.is_over or len(windows) >= settings.max_trials:
            return False
        if self._is_failing():
            return False
        if len(windows) >= WINDOWS and self._is_over_limit():
            return False
        return not is_stable(windows, settings.percentile, settings.stability_percentage)

    def _is_failing(self) -> bool:
        if not self._windows:
            return False
        last = self._windows[-1]
        return last.errors.total() > 0 and last.requests == 0

    def _is_over_limit(self) -> bool:
        last = self._windows[-WINDOWS:]
        return self._limit_ms > 0 and any(
            latency_of(window, self._settings.percentile) / 1e6 > self._limit_ms for window in last
        )

    def _begin_window(self) -> None:
        self._load.recorder.begin_window(clock())
        self._load.take_delays()
        self._processor = self._load.processor_time()

    def _take_window(self) -> None:
        """Fill one window, and begin the next one where it ends."""
        recorder, settings = self._load.recorder, self._settings
        began = clock()
        length_ns = settings.interval_ms * 1_000_000
        window_s = 0.0 if self._is_counting else length_ns / 1e9
        end = began + length_ns if window_s else 1 << 62
        tick = began + _SECOND_NS
        while self._can_run():
            now = clock()
            if now >= tick or now >= end or self._load.is_over:
                if self._load.is_over or now >= end:
                    break
                second = recorder.fold(now)
                self._progress.second_passed(second, (now - began) / 1e9, window_s)
                self._look_for_stall(now)
                tick += _SECOND_NS
                if not self._is_single and self._is_counting and recorder.window.requests >= settings.request_count:
                    break
            self._turn(min(tick, end))
        self._close_window(recorder)

    @property
    def _is_counting(self) -> bool:
        return self._is_single or self._settings.mode == "count_windows"

    def _close_window(self, recorder: Recorder) -> None:
        window = recorder.end_window(clock())
        self._look_for_stall(clock())
        self._observer.mark()
        self._measure_client(window)
        if self._stop.is_wanted and not self._is_single and self._windows:
            # It is shorter than the others.
            return
        self._windows.append(window)
        self._progress.window_done(len(self._windows), window, self._settings.max_trials)

    def _measure_client(self, window: Window) -> None:
        before, after = self._processor, self._load.processor_time()
        client, length_s = window.client, window.duration_s
        client.cores = min(self._load.processes, cores())
        used_s = (after.used_ns - before.used_ns) / 1e9
        if length_s > 0:
            client.cpu_cores = used_s / length_s
            client.waited_cores = (after.waited_ns - before.waited_ns) / 1e9 / length_s
        if window.requests:
            client.cpu_us_per_request = used_s * 1e6 / window.requests
        client.loop_delay.add_all(np.array(self._load.take_delays(), np.int64))
        client.serves = self._loop.serves
        client.is_bottleneck = is_client_bottleneck(client)
        self._processor = after

    # The result

    def _result(self) -> LevelResult:
        settings, windows = self._settings, self._windows
        if self._loop.failure and not any(window.requests for window in windows):
            raise TargetError(self._loop.failure)
        stable = self._is_single or is_stable(windows, settings.percentile, settings.stability_percentage)
        chosen = windows if self._is_single else windows[-WINDOWS:]
        if not stable:
            chosen = list(best_windows(windows, settings.percentile))
        result = LevelResult(self._level, self._batch_size, merge_windows(chosen), windows)
        if not stable and not self._is_over_limit():
            result.unstable_reason = self._unstable_reason()
        if self._limit_ms:
            result.is_within_limit = latency_of(result.merged, settings.percentile) / 1e6 <= self._limit_ms
        if result.merged.server is None and self._observer.is_behind:
            result.notes.append(
                "the server's counts are missing: it did not answer the request for its statistics before the next "
                "window ended; use a longer --measurement-interval"
            )
        if self._loop.failure:
            result.notes.append(self._loop.failure)
        elif self._load.in_flight > 0:
            result.notes.append(f"{self._load.in_flight} requests had no response {DRAIN_S:g} s after the last window")
        return result

    def _unstable_reason(self) -> str:
        if self._stop.is_wanted:
            return "stopped by the user"
        if self._loop.failure:
            return self._loop.failure
        if self._is_failing():
            (kind, cause), count = self._windows[-1].errors.most_common(1)[0]
            return f"the last window has no success but {count} times {kind}: {cause}"
        return unstable_reason(self._windows, self._settings.percentile, self._settings.stability_percentage)
