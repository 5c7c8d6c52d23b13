"""An instance whose requests are answered step by step on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.backend_api.decoupled import DecoupledBackend, DecoupledInstance, Delay, Requester, Step
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import BackendError, InvalidArgumentError, ModelLoadError, NaiadError
from naiad.execution.instances.decoupled import MAX_STEPS
from naiad.execution.instances.warmup import Sample, Warmup
from naiad.execution.model.loaded_model import LoadedModel
from naiad.request import InferRequest, RequestOptions
from support.loaded_models import CONTEXT, LOOPS, WAIT_S, loaded, run, spec

Steps = Callable[[Arrays, Requester], Iterator[Step]]
ONE = {"y": np.ones(1, np.float32)}
TERMS = RequestOptions(("y",))


class Steppers(DecoupledBackend):
    """Runs ``steps``; the first value of the input is for how long an instance is busy, in seconds."""

    def __init__(self, steps: Steps) -> None:
        super().__init__(CONTEXT)
        self._steps = steps
        self.closed = 0

    def start(self, spec: ModelSpec) -> None:
        return

    def create_decoupled(self, group: InstanceGroupSpec, index: int) -> DecoupledInstance:
        backend = self

        class Stepper(DecoupledInstance):
            def steps(self, inputs: Arrays, outputs: Sequence[str], asker: Requester) -> Iterator[Step]:
                return backend._steps(inputs, asker)

            def busy_s(self, inputs: Arrays) -> float:
                return float(inputs["x"].flat[0])

            def close(self) -> None:
                backend.closed += 1

        return Stepper()


class Listener(InferRequest):
    """Notes the responses: outputs by name, texts of errors, and "end"."""

    __slots__ = ("after", "ended", "heard")

    def __init__(self, busy_s: float = 0.0) -> None:
        super().__init__(TERMS, {"x": np.array([busy_s], np.float32)}, "", monotonic_ns())
        self.heard: list[Any] = []
        self.ended = asyncio.Event()
        self.after: Callable[[], object] = lambda: None

    def respond(self, outputs: Mapping[str, Any], error: NaiadError | None) -> None:
        self.respond_part(None if error else outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Any] | None, error: NaiadError | None, final: bool) -> None:
        assert not self.ended.is_set()
        if error is not None:
            self.heard.append(str(error))
        elif outputs is not None:
            self.heard.append(dict(outputs))
        if final:
            self.heard.append("end")
            self.ended.set()
        self.after()


def stepping(steps: Steps, test: Callable[[LoadedModel], Any], loop: str = "uvloop") -> Steppers:
    backend = Steppers(steps)

    async def main() -> None:
        model_spec = replace(spec(max_batch_size=0), decoupled=True)
        with loaded(model_spec, backend) as model:
            await test(model)
            assert (model.in_flight, model.budget.requests, model.budget.bytes) == (0, 0, 0)

    run(main(), loop)
    assert backend.closed == 1
    return backend


def endless(inputs: Arrays, asker: Requester) -> Iterator[Step]:
    while not asker.is_cancelled:
        yield ONE


async def ended(*requests: Listener) -> None:
    async with asyncio.timeout(WAIT_S):
        for request in requests:
            await request.ended.wait()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], ["end"]),
        ([ONE], [ONE, "end"]),
        ([ONE, Delay(0.01), ONE], [ONE, ONE, "end"]),
        ([None, ONE, None], [ONE, "end"]),
        ([BackendError("one"), ONE], ["one", ONE, "end"]),
        ([Delay(0), Delay(-1), Delay(float("-inf"), writes=True)], ["end"]),
        ([ONE] * (3 * MAX_STEPS), [ONE] * (3 * MAX_STEPS) + ["end"]),
    ],
)
def test_what_comes_of_steps(loop: str, steps: list[Step], expected: list[Any]) -> None:
    async def test(model: LoadedModel) -> None:
        model.submit(request := Listener())
        await ended(request)
        assert request.heard == expected

    stepping(lambda inputs, asker: iter(steps), test, loop)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidArgumentError("no"), "no"),
        (ValueError("odd"), "model 'm' failed: ValueError: odd"),
        (SystemExit(3), "model 'm' failed: SystemExit: 3"),
    ],
)
def test_a_step_that_fails_ends_its_request_alone(error: BaseException, text: str) -> None:
    def steps(inputs: Arrays, asker: Requester) -> Iterator[Step]:
        yield ONE
        raise error

    async def test(model: LoadedModel) -> None:
        requests = [Listener() for _ in range(3)]
        for request in requests:
            model.submit(request)
        await ended(*requests)
        assert [r.heard for r in requests] == [[ONE, text, "end"]] * 3
        assert model.statistics.failure.count == 3

    stepping(steps, test)


def test_an_endless_request_leaves_room_for_others_and_ends_with_its_caller() -> None:
    async def test(model: LoadedModel) -> None:
        model.submit(forever := Listener())
        for _ in range(5):
            await asyncio.sleep(0)
        before = len(forever.heard)
        await asyncio.sleep(0)
        assert 0 < len(forever.heard) - before <= 2 * MAX_STEPS
        model.cancel(forever)
        await ended(forever)

    stepping(endless, test)


def test_nothing_is_made_for_a_request_that_is_held() -> None:
    async def test(model: LoadedModel) -> None:
        held = Listener()
        held.after = lambda: len(held.heard) == 10 and model.pause(held, 0)
        model.submit(held)
        model.submit(other := Listener())
        await asyncio.sleep(0.02)
        assert len(held.heard) == 10
        assert len(other.heard) > 10
        model.resume(held)
        model.resume(held)
        await asyncio.sleep(0.02)
        assert len(held.heard) > 20
        model.pause(held, 0)
        for request in (held, other):
            model.cancel(request)
        await ended(held, other)
        # They are gone.
        model.pause(held, 0)
        model.resume(held)
        model.cancel(held)

    stepping(endless, test)


def test_a_wait_ends_with_its_caller_if_it_may() -> None:
    def steps(inputs: Arrays, asker: Requester) -> Iterator[Step]:
        yield Delay(3600)
        yield Delay(0.05, can_be_cut=False)
        yield ONE

    async def test(model: LoadedModel) -> None:
        model.submit(request := Listener())
        await asyncio.sleep(0)
        begun = monotonic()
        model.cancel(request)
        await asyncio.sleep(0.001)
        model.cancel(request)
        await ended(request)
        assert monotonic() - begun >= 0.04

    stepping(steps, test)


def test_one_request_after_the_other_while_an_instance_is_busy() -> None:
    async def test(model: LoadedModel) -> None:
        model.submit(first := Listener(0.1))
        model.submit(second := Listener())
        await ended(first)
        assert not second.ended.is_set()
        assert model.statistics.pending == 1
        await ended(second)
        # A caller that is gone keeps nothing busy.
        model.submit(Listener(0.05))
        model.submit(gone := Listener(3600))
        model.submit(after := Listener())
        model.cancel(gone)
        await ended(after)

    def steps(inputs: Arrays, asker: Requester) -> Iterator[Step]:
        yield ONE

    stepping(steps, test)


def test_a_caller_that_goes_frees_the_instance() -> None:
    async def test(model: LoadedModel) -> None:
        model.submit(gone := Listener(3600))
        model.submit(after := Listener())
        await asyncio.sleep(0)
        model.cancel(gone)
        await ended(gone)
        await asyncio.sleep(0.01)
        assert after.heard
        model.cancel(after)
        await ended(after)

    stepping(endless, test)


def test_many_requests_that_wait_are_begun_without_a_deep_stack() -> None:
    async def test(model: LoadedModel) -> None:
        requests = [Listener() for _ in range(5000)]
        for request in requests:
            model.submit(request)
        await ended(*requests)
        assert model.statistics.execution_count == 5000

    def steps(inputs: Arrays, asker: Requester) -> Iterator[Step]:
        yield ONE

    stepping(steps, test)


@pytest.mark.parametrize("fails", [False, True])
def test_a_warm_up_takes_all_steps_without_their_waits(fails: bool) -> None:
    taken = []

    def steps(inputs: Arrays, asker: Requester) -> Iterator[Step]:
        taken.append("begun")
        yield Delay(3600)
        yield BackendError("cold") if fails else ONE
        taken.append("ended")

    async def test() -> None:
        model_spec = replace(spec(max_batch_size=0), decoupled=True)
        model = LoadedModel(model_spec, 1, Steppers(steps), asyncio.get_running_loop())
        warmup = Warmup([Sample("s", 2, 1, TERMS, {"x": np.zeros(1, np.float32)})])
        if fails:
            with pytest.raises(ModelLoadError, match="cold"):
                model.start(warmup)
            return
        model.start(warmup)
        assert taken == ["begun", "ended"] * 2
        assert model.statistics.execution_count == 0
        model.close()
        model.detach()

    run(test())
