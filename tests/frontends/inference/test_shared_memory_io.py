"""Inputs in regions that have to be read in a thread before their request reaches its model."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

from naiad.errors import CancelledError, QueueFullError, ServerStoppingError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.frontends.inference.deferred_inputs import QUICK_BYTES, DeferredInputs, submit_when_read
from naiad.frontends.inference.shared_memory_io import open_regions
from naiad.request import RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.shared_memory.region import RegionPart, RegionRef
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.spec import RegionInput, RegionOptions
from naiad.tensor.dtypes import BY_WIRE
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, loaded, negate, spec

FP32 = BY_WIRE["FP32"]


class DeviceMemory:
    """Stands for memory of a device: no file, so it is read in a thread, which waits until ``free`` is set."""

    descriptor = -1
    start = 0

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.byte_size = len(data)
        self.free = threading.Event()
        self._data = data

    def check_filled(self, size: int) -> None:
        pass

    def read_into(self, target: memoryview, offset: int) -> None:
        assert self.free.wait(WAIT_S)
        target[:] = self._data[offset : offset + len(target)]

    def write(self, data: memoryview, offset: int) -> None:
        raise AssertionError("nothing is to be written")


def given(name: str, region: str) -> RegionInput:
    return RegionInput(name, FP32, (1, 1), 1, RegionRef(region, 0, 4))


def late_caller(value: float) -> tuple[Caller, DeviceMemory, DeferredInputs]:
    """A request whose only input lies on a device."""
    region = DeviceMemory("in", np.float32(value).tobytes())
    place = given("x", "in")
    options = RequestOptions(("y",), 1, ("regions", 1), regions=RegionOptions((place,), ()))
    caller = Caller(0, options=options)
    caller.inputs = {}
    return caller, region, DeferredInputs([(place, RegionPart(region, 0, 4))], {}, spec(), "")


def submit(caller: Caller, model: LoadedModel, late: DeferredInputs, is_wanted: bool = True) -> None:
    submit_when_read(caller, model, late, lambda: is_wanted)


def test_a_model_that_is_replaced_meanwhile_answers_what_it_was_to_get() -> None:
    async def test() -> None:
        with loaded(spec(), negate) as model:
            caller, region, late = late_caller(3)
            submit(caller, model, late)
            drained = asyncio.Event()
            model.stop_accepting()
            model.when_drained(drained.set)
            assert not drained.is_set()
            with pytest.raises(ServerStoppingError):
                model.submit(Caller(1))
            region.free.set()
            assert await caller.answer() == [-3.0]
            await asyncio.wait_for(drained.wait(), WAIT_S)
            assert (model.budget.requests, model.budget.bytes) == (0, 0)

    run(test())


def test_a_request_that_nobody_waits_for_any_more_is_answered_all_the_same() -> None:
    async def test() -> None:
        with loaded(spec(), negate) as model:
            caller, region, late = late_caller(3)
            submit(caller, model, late, is_wanted=False)
            region.free.set()
            with pytest.raises(CancelledError):
                await caller.answer()
            await until(lambda: model.in_flight == 0)
            assert (model.budget.requests, model.budget.bytes) == (0, 0)

    run(test())


def test_what_has_no_room_is_not_read() -> None:
    async def test() -> None:
        with loaded(spec(), negate, RequestBudget(max_requests=1)) as model:
            first, region, late = late_caller(3)
            submit(first, model, late)
            second, _, other = late_caller(4)
            with pytest.raises(QueueFullError):
                submit(second, model, other)
            region.free.set()
            assert await first.answer() == [-3.0]

    run(test())


@pytest.mark.parametrize(("size", "is_quick"), [(QUICK_BYTES, True), (QUICK_BYTES + 4, False)])
def test_little_alone_is_read_on_the_loop_for_the_order_of_a_sequence(size: int, is_quick: bool) -> None:
    async def test() -> None:
        with loaded(spec(), negate) as model:
            region = DeviceMemory("in", bytes(size))
            region.descriptor = 1_000_000
            region.free.set()
            place = RegionInput("x", FP32, (1, size // 4), size // 4, RegionRef("in", 0, size))
            caller = Caller(0, options=RequestOptions(("y",), 1, 1, correlation_id=7))
            caller.inputs = {}
            submit(
                caller, model, DeferredInputs([(place, RegionPart(region, 0, size))], {}, spec(), ""), is_wanted=False
            )
            assert ("x" in caller.inputs) is is_quick
            if not is_quick:
                with pytest.raises(CancelledError):
                    await caller.answer()
            await until(lambda: model.in_flight == 0)

    run(test())


@pytest.mark.parametrize("on_device", ["a", "b"])
def test_inputs_keep_their_order_whatever_is_read_late(on_device: str) -> None:
    """The process of a model knows requests with the same terms by the order of their inputs."""

    async def test() -> None:
        with loaded(spec(), negate) as model:
            registry = RegionRegistry(True)
            regions = {name: DeviceMemory(name, np.float32(ord(name)).tobytes()) for name in "ab"}
            for region in regions.values():
                region.free.set()
                registry.add_cuda(region)
            regions["b" if on_device == "a" else "a"].descriptor = 1_000_000
            options = RequestOptions(("y",), 1, 1, regions=RegionOptions((given("x", "a"), given("z", "b")), ()))
            caller = Caller(0, options=options)
            caller.inputs = {}
            late = open_regions(caller, registry, model).deferred
            assert late is not None
            submit(caller, model, late, is_wanted=False)
            with pytest.raises(CancelledError):
                await caller.answer()
            assert list(caller.inputs) == ["x", "z"]

    run(test())
