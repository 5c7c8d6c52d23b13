"""Requests of a front end that arrive together and run as one: each caller sees, and each counter says, what single
requests would bring about. Both ends of the link, with a real model behind them, on one loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.clock import SystemClock
from naiad.config.spec import BatchingSpec, ModelSpec, QueuePolicySpec, QueueSpec
from naiad.errors import NaiadError, UnavailableError
from naiad.execution.batching.request_group import GroupOptions, RequestGroup
from naiad.execution.model.group_queue import GroupQueue
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.queue_scheduler import QueueScheduler
from naiad.execution.model.responder import ModelResponder
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.options.metric_families import STAGES
from naiad.request import InferRequest, RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.server.fronts.front_model import FrontModel
from naiad.server.fronts.inference_session import InferenceSession
from naiad.server.fronts.link import Link
from naiad.server.fronts.model_table import Announced
from naiad.server.fronts.relayed_group import RelayedGroup
from naiad.server.fronts.relayed_request import HttpRelayedRequest, RelayedRequest
from naiad.server.fronts.remote_engine import RemoteEngine
from naiad.server.fronts.replicas.replicas import Replicas
from naiad.server.fronts.tensors import received
from naiad.telemetry.metrics.latencies import Latencies, LatencySettings
from naiad.telemetry.metrics.model_statistics import ModelStatistics
from naiad.telemetry.slow.recorder import SlowRequests
from support.event_loops import WAIT_S, run, turns, until
from support.loaded_models import POISON, Execute, FunctionBackend, loaded, negate, picky, spec, tensor
from support.noted_requests import NotedRequest

OPTIONS = RequestOptions(("y",), 1, (("x", (1,)),))
MS = 1_000_000


class Caller(NotedRequest):
    """A request from one value of ``x`` to ``y``, as the front ends of HTTP make it."""

    __slots__ = ()
    carrier = "HTTP"

    def __init__(self, value: float, options: RequestOptions = OPTIONS) -> None:
        super().__init__(options, {"x": np.array([[value]], np.float32)}, f"id-{value:g}")

    async def value(self) -> float:
        return float((await self.outputs())["y"][0, 0])


class NotedGroups:
    """Notes the sizes of the groups that a queue takes."""

    def __init__(self, queue: GroupQueue) -> None:
        self._queue = queue
        self.sizes: list[int] = []

    def rows_of(self, row_bytes: int) -> int:
        return self._queue.rows_of(row_bytes)

    def submit(self, group: RequestGroup) -> bool:
        count, is_queued = group.count, self._queue.submit(group)
        if is_queued:
            self.sizes.append(count)
        return is_queued

    def cancel(self, group: RequestGroup, request: InferRequest) -> None:
        self._queue.cancel(group, request)


class OneModel:
    """An engine and a table with one model, as far as a session asks them."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model

    def find(self, name: str, version: str | None) -> LoadedModel:
        return self.model

    def get(self, number: int) -> Announced:
        return Announced("m", "", self.model, 0)

    def wait_for_model(self, error: NaiadError, size: int, done: object) -> None:
        return None


class Front:
    """A front end that is connected to a session of ``model``.

    Attributes:
        groups: the sizes of the groups that were queued.
    """

    def __init__(self, model: LoadedModel) -> None:
        assert model.groups is not None
        noted: Any = NotedGroups(model.groups)
        model.groups, self.groups = noted, noted.sizes
        loop = asyncio.get_running_loop()
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        one: Any = OneModel(model)
        self.session = InferenceSession(one, one)
        self.remote = RemoteEngine(RequestBudget(), Replicas(RequestBudget(), LoadSettings, lambda model: None))
        self._links = (
            Link("the engine", ends[0], loop, self.remote.handlers(), self.remote.disconnect),
            Link("the front end", ends[1], loop, self.session.handlers(), self.session.close),
        )
        self.remote.connect(self._links[0])
        self.session.connect(self._links[1])
        self.model = FrontModel(self.remote, 1, model.spec, 1)

    def send(self, *values: float) -> list[Caller]:
        """Send requests in one turn, which is one message."""
        callers = [Caller(value) for value in values]
        for caller in callers:
            self.model.submit(caller)
        return callers

    def close(self) -> None:
        for link in self._links:
            link.close()


def batched(**more: Any) -> ModelSpec:
    size = more.pop("max_batch_size", 64)
    return spec(max_batch_size=size, batching=BatchingSpec((size,), 0, False), **more)


def play(
    scenario: Callable[[Front, LoadedModel], Awaitable[None]],
    function: Execute = negate,
    model_spec: ModelSpec | None = None,
    budget: RequestBudget | None = None,
) -> None:
    async def test() -> None:
        with loaded(batched() if model_spec is None else model_spec, function, budget) as model:
            front = Front(model)
            try:
                await scenario(front, model)
                assert (model.in_flight, model.statistics.pending) == (0, 0)
                assert (model.budget.requests, model.budget.bytes) == (0, 0)
                assert (front.remote.budget.requests, front.remote.budget.bytes) == (0, 0)
            finally:
                front.close()

    run(test())


class Gate:
    """Negates once it is opened; notes the rows of its runs."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.runs: list[list[float]] = []

    def __call__(self, inputs: Arrays, outputs: object) -> Arrays:
        self.runs.append(inputs["x"].ravel().tolist())
        self.entered.set()
        assert self.open.wait(WAIT_S)
        return negate(inputs, ("y",))


# Together


@pytest.mark.parametrize(("count", "sizes"), [(1, []), (2, []), (3, [3]), (16, [16]), (17, [16]), (40, [16, 16, 8])])
def test_requests_that_arrive_together_run_together(count: int, sizes: list[int]) -> None:
    gate = Gate()
    gate.open.set()

    async def scenario(front: Front, model: LoadedModel) -> None:
        callers = front.send(*range(count))
        assert [await caller.value() for caller in callers] == [-i for i in range(count)]
        assert front.groups == sizes
        assert model.statistics.success.count == model.statistics.inference_count == count
        assert model.statistics.execution_count == 1

    play(scenario, gate)
    assert gate.runs == [list(range(count))]


def test_groups_stay_below_half_of_a_small_batch() -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        callers = front.send(*range(9))
        assert [await caller.value() for caller in callers] == [-i for i in range(9)]
        assert front.groups == [4, 4]

    play(scenario, model_spec=batched(max_batch_size=8))


def test_two_front_ends_share_a_batch() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        other = Front(model)
        first = front.send(1)
        await until(gate.entered.is_set)
        callers = [*front.send(2, 3), *other.send(4, 5)]
        await until(lambda: model.statistics.pending == 4)
        gate.open.set()
        assert [await caller.value() for caller in first + callers] == [-1, -2, -3, -4, -5]
        other.close()

    play(scenario, gate)
    assert sorted(map(sorted, gate.runs)) == [[1], [2, 3, 4, 5]]


def test_requests_with_other_options_are_groups_of_their_own() -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        more = RequestOptions(("y",), 1, (("x", (1,)),), {"priority": 1})
        callers = [Caller(i, more if i % 2 else OPTIONS) for i in range(6)]
        for caller in callers:
            front.model.submit(caller)
        assert [await caller.value() for caller in callers] == [-i for i in range(6)]
        assert front.groups == [3, 3]

    play(scenario)


@pytest.mark.parametrize("rows", [2, 3])
def test_requests_of_several_rows_stay_apart(rows: int) -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        options = RequestOptions(("y",), rows, (("x", (1,)),))
        values = np.arange(rows, dtype=np.float32).reshape(-1, 1)
        callers = [NotedCaller(options, {"x": values + i}) for i in range(4)]
        for caller in callers:
            front.model.submit(caller)
        for i, caller in enumerate(callers):
            assert ((await caller.outputs())["y"] == -(values + i)).all()
        assert front.groups == []

    play(scenario)


@pytest.mark.parametrize("wire", ["BYTES", "FP32"])
def test_strings_and_large_tensors_stay_apart(wire: str) -> None:
    """Large ones would hold the loop up while they are put together, and larger ones lie in shared memory."""
    size = 3 if wire == "BYTES" else 1 << 15
    given = np.array([[b"a", b"", b"ccc"]], np.object_) if wire == "BYTES" else np.ones((1, size), np.float32)

    def same(inputs: Arrays, outputs: object) -> Arrays:
        return {"y": inputs["x"]}

    async def test() -> None:
        model_spec = spec(
            (tensor("x", wire, (size,)),), (tensor("y", wire, (size,)),), max_batch_size=64,
            batching=BatchingSpec((64,), 0, False),
        )  # fmt: skip
        with loaded(model_spec, FunctionBackend(lambda index: same)) as model:
            front = Front(model)
            options = RequestOptions(("y",), 1, (("x", (size,)),))
            callers = [NotedCaller(options, {"x": given}) for _ in range(5)]
            for caller in callers:
                front.model.submit(caller)
            for caller in callers:
                assert np.array_equal((await caller.outputs())["y"], given)
            assert front.groups == []
            front.close()

    run(test())


class NotedCaller(NotedRequest):
    __slots__ = ()
    carrier = "HTTP"


def test_what_has_rules_of_its_own_takes_no_groups() -> None:
    async def test() -> None:
        sizes = BatchingSpec((4, 8), 0, False)
        in_order = BatchingSpec((8,), 0, True)
        for model_spec in (
            spec(),
            spec(batching=sizes),
            spec(batching=in_order),
            batched(max_batch_size=5),
            batched(queue=QueueSpec(policy=QueuePolicySpec(max_size=4))),
        ):
            with loaded(model_spec, negate) as model:
                assert model.groups is None
        with loaded(batched(), negate) as model:
            assert model.groups is not None
            model.stop_accepting()
            assert model.groups is None

    run(test())


# One of many


@pytest.mark.parametrize("bad", [0, 7, 15, 19])
def test_a_bad_request_fails_alone(bad: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        callers = front.send(*(POISON if i == bad else i for i in range(20)))
        for i, caller in enumerate(callers):
            if i == bad:
                assert "poisoned" in str(await caller.error())
            else:
                assert await caller.value() == -i
        assert front.groups == [16, 4]
        assert model.statistics.success.count == 19
        assert model.statistics.failure.count == 1

    with caplog.at_level(logging.WARNING, "naiad"):
        play(scenario, picky)
    assert [r.getMessage() for r in caplog.records if f"request id: id-{POISON:g}" in r.getMessage()]


def test_a_request_that_is_cancelled_leaves_its_group() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        first = front.send(0)
        await until(gate.entered.is_set)
        callers = front.send(1, 2, 3)
        await until(lambda: model.statistics.pending == 3)
        front.model.cancel(callers[0])
        assert "cancelled" in str(await callers[0].error())
        assert (model.statistics.pending, model.in_flight) == (2, 3)
        gate.open.set()
        assert [await caller.value() for caller in (*first, *callers[1:])] == [0, -2, -3]
        assert (model.statistics.success.count, model.statistics.failure.count) == (3, 1)

    play(scenario, gate)
    assert gate.runs == [[0], [2, 3]]


def test_a_group_whose_requests_are_all_cancelled_does_not_run() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        first = front.send(0)
        await until(gate.entered.is_set)
        callers = front.send(1, 2, 3)
        await until(lambda: model.statistics.pending == 3)
        for caller in callers:
            front.model.cancel(caller)
        for caller in callers:
            assert "cancelled" in str(await caller.error())
        assert (model.statistics.pending, model.in_flight) == (0, 1)
        gate.open.set()
        assert await first[0].value() == 0

    play(scenario, gate)
    assert gate.runs == [[0]]


def test_a_request_that_runs_gets_its_response_though_it_is_cancelled() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        callers = front.send(1, 2)
        await until(gate.entered.is_set)
        front.model.cancel(callers[0])
        await turns()
        gate.open.set()
        assert [await caller.value() for caller in callers] == [-1, -2]

    play(scenario, gate)


def test_a_front_end_that_is_gone_leaves_nothing_queued() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        front.send(0)
        await until(gate.entered.is_set)
        front.send(1, 2, 3)
        await until(lambda: model.statistics.pending == 3)
        front.close()
        front.remote.disconnect()
        front.session.close()
        assert model.statistics.pending == 0
        gate.open.set()
        await until(lambda: model.in_flight == 0)

    play(scenario, gate)
    assert gate.runs == [[0]]


# Bounds and ends


def test_each_request_counts_against_the_bounds() -> None:
    gate = Gate()

    async def scenario(front: Front, model: LoadedModel) -> None:
        callers = front.send(*range(12))
        await until(gate.entered.is_set)
        late = front.send(*range(12, 16))
        refused = [str(await caller.error()) for caller in late[2:]]
        assert all("14" in text for text in refused)
        assert front.groups == [12]
        gate.open.set()
        assert [await caller.value() for caller in callers + late[:2]] == [-i for i in range(14)]
        assert (model.statistics.success.count, model.statistics.failure.count) == (14, 2)

    play(scenario, gate, budget=RequestBudget(max_requests=14))


def test_requests_of_a_model_that_stops_are_refused_one_by_one() -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        model.stop_accepting()
        callers = front.send(1, 2, 3)
        assert ["stopping" in str(await caller.error()) for caller in callers] == [True] * 3

    play(scenario)


# What is said about each


def test_each_request_is_in_the_distributions() -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        kept = Latencies(LatencySettings(histograms=True), {})
        model.keep_latencies(kept)
        callers = front.send(*range(10))
        for caller in callers:
            await caller.value()
        assert front.groups == [10]
        kept.settle()
        assert {stage: found.count for stage, found in kept.stages.items()} == dict.fromkeys(STAGES, 10)

    play(scenario)


def test_each_slow_request_is_named() -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        slow = SlowRequests(10)
        slow.threshold_ns = 0
        slow.watch.start()
        model.record_slow(slow)
        callers = front.send(*range(5))
        for caller in callers:
            await caller.value()
        await until(lambda: len(slow.as_json()) == 5)
        assert {one["id"] for one in slow.as_json()} == {caller.id for caller in callers}
        assert {one["rows"] for one in slow.as_json()} == {1}
        slow.watch.close()

    play(scenario)


def test_the_log_of_a_batch_names_its_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(front: Front, model: LoadedModel) -> None:
        model.log_batches(True)
        for caller in front.send(1, 2, 3):
            await caller.value()

    with caplog.at_level(logging.DEBUG - 5, "naiad"):
        play(scenario)
    (line,) = [r.getMessage() for r in caplog.records if "runs 3 rows" in r.getMessage()]
    assert "3 requests" in line and "id-1, id-2, id-3" in line


def test_several_tensors_come_back_in_their_rows() -> None:
    def both(inputs: Arrays, outputs: object) -> Arrays:
        return {"y": inputs["x"] + inputs["z"], "w": inputs["z"].astype(np.int64)}

    async def test() -> None:
        inputs = (tensor("x"), tensor("z", "INT32", (2,)))
        outputs = (tensor("y", "FP64", (2,)), tensor("w", "INT64", (2,)))
        model_spec = spec(inputs, outputs, max_batch_size=32, batching=BatchingSpec((32,), 0, False))
        with loaded(model_spec, FunctionBackend(lambda index: both)) as model:
            front = Front(model)
            options = RequestOptions(("y", "w"), 1, (("x", (1,)), ("z", (2,))))
            given = [{"x": np.array([[i]], np.float32), "z": np.array([[10 * i, 100 * i]], np.int32)} for i in range(7)]
            callers = [NotedCaller(options, one) for one in given]
            for caller in callers:
                front.model.submit(caller)
            for one, caller in zip(given, callers, strict=True):
                found = await caller.outputs()
                assert found["y"].shape == found["w"].shape == (1, 2)
                assert (found["y"] == one["x"] + one["z"]).all()
                assert (found["w"] == one["z"]).all()
            assert front.groups == [7]
            front.close()

    run(test())


def test_a_group_that_waits_fails_one_by_one_when_no_worker_is_left() -> None:
    async def test() -> None:
        statistics, budget = ModelStatistics(), RequestBudget()
        responder = ModelResponder("m", statistics, budget, SystemClock(), None, None)
        scheduler = QueueScheduler(batched(), asyncio.get_running_loop(), responder)
        queue = GroupQueue(responder, scheduler, 16)
        sent: list[tuple[int, str]] = []

        class Sender:
            def respond(self, request: RelayedRequest, outputs: object) -> None:
                raise AssertionError(f"{request.mark} was answered")

            def fail(self, request: RelayedRequest, error: NaiadError, is_refusal: bool = False) -> None:
                sent.append((request.mark, str(error)))

            def respond_group(self, marks: object, outputs: object) -> None:
                raise AssertionError(f"{marks} were answered")

        layout = received((("x", "FP32", (1, 1)),))
        rows = [(mark, f"id-{mark}", 1, 2, 4, [bytes(4)]) for mark in range(3)]
        group = RelayedGroup(Sender(), GroupOptions(OPTIONS, 3), HttpRelayedRequest, OPTIONS, layout, rows, queue)
        assert queue.submit(group)
        assert (statistics.pending, budget.requests, budget.bytes) == (3, 3, 12)
        scheduler.fail_all(UnavailableError("no worker is left"))
        assert sent == [(mark, "no worker is left") for mark in range(3)]
        assert (statistics.pending, budget.requests, budget.bytes, responder.in_flight) == (0, 0, 0, 0)
        assert statistics.failure.count == 3
        scheduler.close()

    run(test())
