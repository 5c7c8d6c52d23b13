"""What the recorder keeps does not grow with the number of requests."""

from __future__ import annotations

import tracemalloc
from array import array

import numpy as np
import pytest

from naiad.perf.measure.recorder import Recorder
from naiad.perf.results import Window

pytestmark = pytest.mark.slow
RATE = 20_000
SECONDS = 600
LIMIT_BYTES = 20_000_000


@pytest.mark.parametrize("window_s", [600, 60, 5])
def test_ten_minutes_at_20000_a_second_stay_within_20_mb(window_s: int) -> None:
    # Latencies with a long tail, and delays of sends: about as many different durations as a busy server gives.
    source = np.random.default_rng(0)
    latencies = [array("q", source.lognormal(13, 0.7, RATE).astype(np.int64).tobytes()) for _ in range(10)]
    delays = array("q", source.exponential(20_000, RATE).astype(np.int64).tobytes())
    recorder = Recorder()
    windows: list[Window] = []
    tracemalloc.start()
    try:
        now_ns = 1_000_000_000
        recorder.begin_window(now_ns)
        for second in range(1, SECONDS + 1):
            recorder.latencies.extend(latencies[second % 10])
            recorder.send_delays.extend(delays)
            recorder.sent += RATE
            now_ns += 1_000_000_000
            if second % window_s:
                recorder.fold(now_ns)
            else:
                windows.append(recorder.end_window(now_ns))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(window.latency.count for window in windows) == RATE * SECONDS
    assert sum(len(window.seconds) for window in windows) == SECONDS
    assert peak < LIMIT_BYTES
