"""The recorder of slow requests, beside a loop that is made late."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from naiad.execution.batching.batch import Batch
from naiad.request import InferRequest, RequestOptions
from naiad.telemetry.slow import recorder
from naiad.telemetry.slow.evidence import Evidence, Incident
from naiad.telemetry.slow.recorder import LEAST_NS, SlowOfModel, SlowRequests
from naiad.telemetry.slow.watch import ProcessWatch
from support.event_loops import until

MS = 1_000_000


def batch_of(ages_ms: Sequence[int], ids: str) -> Batch:
    """A batch that has run just now, of requests of some ages."""
    now_ns = time.monotonic_ns()
    options = RequestOptions(("y",))
    batch = Batch([InferRequest(options, {}, id, now_ns - age * MS) for age, id in zip(ages_ms, ids, strict=True)])
    batch.start_ns = batch.input_ns = now_ns - 4 * MS
    batch.infer_ns = batch.end_ns = now_ns
    return batch


def test_the_slowest_are_kept_the_slowest_first() -> None:
    async def test() -> None:
        slow = SlowRequests(2)
        slow.watch.start()
        model = SlowOfModel(slow, "m", 3)
        for ages, ids in (((500, 90), "ab"), ((5,), "c"), ((700,), "d")):
            batch = batch_of(ages, ids)
            model.ran(batch)
            model.responded(batch.requests, batch, batch.rows, "")
        await until(lambda: slow.threshold_ns > LEAST_NS)
        await until(lambda: [one["id"] for one in slow.as_json()] == ["d", "a"])
        assert slow.as_json("m") == slow.as_json()
        assert slow.as_json("other") == []
        first = slow.as_json()[0]
        assert (first["model"], first["version"], first["batch_rows"]) == ("m", "3", 1)
        assert first["stages_us"]["queue"] >= 690_000
        slow.watch.close()

    asyncio.run(test())


def test_a_caller_that_does_not_read_is_the_cause() -> None:
    async def test() -> None:
        slow = SlowRequests(5)
        slow.watch.start()
        model = SlowOfModel(slow, "m", 1)
        batch = batch_of((20,), "a")
        model.paused(batch.requests[0])
        await asyncio.sleep(0.1)
        model.resumed(batch.requests[0])
        model.responded(batch.requests, batch, 1, "")
        await until(slow.as_json)
        found = slow.as_json()[0]
        assert found["cause"] == "client_not_reading"
        assert found["client_not_reading_us"] >= 90_000
        slow.watch.close()

    asyncio.run(test())


def test_old_requests_make_room_though_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowRequests(1)
    later: list[tuple[Callable[[], object], float]] = []
    monkeypatch.setattr(slow.watch, "later", lambda call, after_s=0.0: later.append((call, after_s)))
    model = SlowOfModel(slow, "m", 1)
    batch = batch_of((700,), "a")
    model.responded(batch.requests, batch, batch.rows, "")
    (explain, _) = later.pop()
    explain()
    assert slow.threshold_ns > LEAST_NS
    (forget, after_s) = later.pop()
    assert after_s == pytest.approx(recorder.WINDOW_NS / 1e9, abs=60)
    # The five minutes are over.
    monkeypatch.setattr(recorder, "WINDOW_NS", 0)
    forget()
    assert slow.threshold_ns == LEAST_NS
    assert later == []


def test_a_request_that_fails_before_it_runs_is_forgotten() -> None:
    model = SlowOfModel(SlowRequests(1), "m", 1)
    array = np.zeros(1)
    request = InferRequest(RequestOptions(("y",)), {"x": array}, "", 0)
    held = weakref.ref(array)
    model.paused(request)
    model.forget(request)
    del request, array
    assert held() is None


def test_a_loop_that_is_blocked_is_seen_with_the_place() -> None:
    async def test() -> None:
        evidence = Evidence()
        watch = ProcessWatch(evidence)
        watch.start()
        await until(lambda: len(evidence.samples) > 2)
        begun_ns = time.monotonic_ns()
        time.sleep(0.3)
        ended_ns = time.monotonic_ns()
        await until(lambda: any(s.end_ns >= ended_ns for s in evidence.stops))
        assert watch.latest_ns >= 250 * MS
        total = sum(evidence.stopped_ns(kind, begun_ns, ended_ns) for kind in Incident)
        assert total >= 250 * MS
        assert any("test_recorder.py" in stop.place for stop in evidence.stops)
        watch.close()
        assert not any(thread.name == "naiad-watch" for thread in threading.enumerate())

    asyncio.run(test())
