"""Notes of requests, folded into windows and seconds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from naiad.perf.measure.merge import difference, merge_windows
from naiad.perf.measure.recorder import Recorder
from naiad.perf.results import ServerParts, Usage, Window

SECOND = 1_000_000_000
US = 1000


def test_windows_share_their_boundaries_and_hold_what_ended_in_them() -> None:
    recorder = Recorder()
    recorder.latencies.extend([99 * US])
    recorder.begin_window(10 * SECOND)
    recorder.latencies.extend([1 * US, 2 * US])
    recorder.fold(11 * SECOND)
    recorder.latencies.extend([3 * US])
    first = recorder.end_window(12 * SECOND)
    recorder.latencies.extend([4 * US])
    second = recorder.end_window(13 * SECOND)
    assert (first.requests, first.latency.total, first.duration_s) == (3, 6 * US, 2)
    assert (second.requests, second.latency.total, second.duration_s) == (1, 4 * US, 1)
    assert first.ended_ns == second.began_ns
    assert [(part.at_s, part.requests) for part in first.seconds] == [(0, 2), (1, 1)]


def test_errors_are_counted_by_kind_and_cause() -> None:
    recorder = Recorder()
    recorder.begin_window(0)
    recorder.errors.update([("HTTP 500", "a"), ("HTTP 500", "b"), ("HTTP 500", "a")])
    second = recorder.fold(SECOND)
    window = recorder.end_window(SECOND)
    assert second.errors == 3
    assert dict(window.errors) == {("HTTP 500", "a"): 2, ("HTTP 500", "b"): 1}


def test_the_time_beside_sending_and_receiving_is_the_wait() -> None:
    recorder = Recorder()
    recorder.begin_window(0)
    recorder.latencies.extend([100 * US, 200 * US])
    recorder.times.send_ns, recorder.times.receive_ns = 30 * US, 20 * US
    window = recorder.end_window(SECOND)
    assert (window.send_ns, window.wait_ns, window.receive_ns) == (30 * US, 250 * US, 20 * US)


def test_delayed_requests_are_those_a_millisecond_late() -> None:
    recorder = Recorder()
    recorder.begin_window(0)
    recorder.send_delays.extend([0, 900 * US, 1100 * US, 5000 * US])
    window = recorder.end_window(SECOND)
    assert (window.delayed, window.send_delay.count) == (2, 4)


def test_responses_are_requests_unless_they_are_counted_apart() -> None:
    for is_streaming, expected in ((False, 1), (True, 5)):
        recorder = Recorder(is_streaming=is_streaming)
        recorder.begin_window(0)
        recorder.latencies.append(US)
        recorder.responses = 5
        assert recorder.end_window(SECOND).responses == expected


def test_requests_are_kept_from_the_first_window_on() -> None:
    recorder = Recorder(exported=[{"x": 1}])
    assert recorder.keeper is None
    recorder.begin_window(0)
    assert recorder.keeper is not None
    recorder.keeper.keep(5, 9, 0, None, None, is_success=True)
    recorder.keeper.keep(6, 12, 0, [8, 12], 77, is_success=False)
    one, two = recorder.records(3)
    assert (one.level, one.inputs, one.sequence_id, one.is_success) == (3, {"x": 1}, None, True)
    assert one.response_timestamps_ns[0] - one.timestamp_ns == 4
    assert [moment - two.timestamp_ns for moment in two.response_timestamps_ns] == [2, 6]
    assert (two.sequence_id, two.is_success) == (77, False)


def test_ten_minutes_of_windows_take_little_memory() -> None:
    random = np.random.default_rng(0)
    durations = random.lognormal(12.5, 0.7, (20, 20_000)).astype(np.int64)
    recorder = Recorder()
    recorder.begin_window(0)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    windows = []
    for second in range(20):
        recorder.latencies.frombytes(durations[second].tobytes())
        recorder.fold((second + 1) * SECOND)
        if second % 5 == 4:
            windows.append(recorder.end_window((second + 1) * SECOND))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Four windows of 120.
    assert (used - before) / len(windows) * 120 < 20e6


def parts(model: str, successes: int, *composing: ServerParts) -> ServerParts:
    return ServerParts(model, "1", successes=successes, queue_ns=successes * 10, composing=list(composing))


def test_counts_of_a_server_are_differences_step_by_step() -> None:
    found = difference(parts("e", 30, parts("a", 60)), parts("e", 10, parts("a", 20)))
    assert found is not None
    assert (found.successes, found.queue_ns, found.composing[0].successes) == (20, 200, 40)


@pytest.mark.parametrize(
    ("after", "before"), [(None, parts("m", 1)), (parts("m", 1), None), (parts("m", 1), parts("m", 5))]
)
def test_a_server_that_began_anew_has_no_difference(after: ServerParts | None, before: ServerParts | None) -> None:
    assert difference(after, before) is None


def test_windows_merge_into_one() -> None:
    first, second = Window(0, SECOND, requests=2), Window(SECOND, 3 * SECOND, requests=6)
    first.latency.add(10 * US)
    second.latency.add(30 * US)
    first.server, second.server = parts("m", 2, parts("a", 4)), parts("m", 6, parts("a", 12))
    first.usage = Usage("x", cpu_cores=1.0, rss_bytes=5, gpu_utilization={"g": 0.2})
    second.usage = Usage("x", cpu_cores=0.25, rss_bytes=9, gpu_utilization={"g": 0.4})
    first.client.cpu_cores = second.client.cpu_cores = 0.95
    merged = merge_windows([first, second])
    assert (merged.requests, merged.duration_s, merged.latency.total) == (8, 3, 40 * US)
    assert merged.server is not None
    assert (merged.server.successes, merged.server.composing[0].successes) == (8, 16)
    assert merged.usage.cpu_cores == pytest.approx(0.5)
    assert merged.usage.cpu_us_per_request == pytest.approx(1.5e6 / 8)
    assert (merged.usage.rss_bytes, merged.usage.gpu_utilization) == (9, {"g": pytest.approx(0.3)})
    assert merged.client.is_bottleneck
