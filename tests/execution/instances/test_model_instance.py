"""The contract of an instance, for every kind: what the queue and the set of a model rely on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

import pytest

from execution.instances.test_decoupled import ONE, Steppers
from naiad.backend_api.backend import Arrays
from naiad.backend_api.decoupled import Delay, Requester, Step
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.model_instance import NO_REGIONS, ModelInstance
from naiad.execution.model.loaded_model import LoadedModel
from support import framework_models as hosted_models
from support.loaded_models import FunctionBackend, loaded, negate, spec
from support.worker_models import WAIT_S, Caller, serving, until, write_model

KINDS = ("inline", "thread", "stepped", "process", "framework")


class InlineFunctions(FunctionBackend):
    runs_inline = True


def once(inputs: Arrays, requester: Requester) -> Iterator[Step]:
    yield ONE


@contextlib.asynccontextmanager
async def serving_kind(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoadedModel]:
    """A model with one instance of that kind."""
    if kind in ("process", "framework"):
        repository = folder / "models"
        if kind == "process":
            write_model(repository)
        else:
            hosted_models.install(folder / "code", monkeypatch)
            hosted_models.write_rowdy(repository, "process")
        async with serving(repository) as engine:
            model = engine.find("m", None)
            assert isinstance(model, LoadedModel)
            yield model
        return
    backends: dict[str, Callable[[], FunctionBackend | Steppers]] = {
        "inline": lambda: InlineFunctions(lambda index: negate),
        "thread": lambda: FunctionBackend(lambda index: negate),
        "stepped": lambda: Steppers(once),
    }
    with loaded(replace(spec(), max_batch_size=8), backends[kind]()) as model:
        yield model


def only(model: LoadedModel) -> ModelInstance:
    (instance,) = model._instances
    return instance


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_the_contract(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with serving_kind(kind, tmp_path, monkeypatch) as model:
            instance, is_worker = only(model), kind in ("process", "framework")
            await until(lambda: instance.is_up)
            assert isinstance(instance, ModelInstance)
            assert (instance.problem, instance.not_ready, instance.is_down) == ("", "", False)
            assert instance.is_idle
            # A worker process has a number, and the model names it; nothing else has one.
            assert bool(instance.pid) == instance.is_worker == is_worker
            assert model.process_ids == ([instance.pid] if is_worker else [])
            assert (instance.execute is not None) == (kind == "inline")
            assert instance.sends_requests == (kind == "process")
            assert (instance.prepare is not None) == (kind in ("inline", "thread"))
            assert (instance.regions_from < NO_REGIONS) == (kind in ("thread", "process", "framework"))
            assert model.regions_from == instance.regions_from

            unknown = Caller()
            instance.cancel(unknown)
            instance.pause(unknown, 1)
            instance.resume(unknown)
            assert instance.is_idle

            callers = [Caller(0.0) for _ in range(3)]
            for caller in callers:
                model.submit(caller)
            for caller in callers:
                assert list(await caller.outputs()) == ["y"]
            await until(lambda: instance in model._queue.idle)
            assert instance.is_idle

    asyncio.run(asyncio.wait_for(test(), 3 * WAIT_S))


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_gathers_what_is_small_and_run_says_what_is_known_at_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with serving_kind(kind, tmp_path, monkeypatch) as model:
            instance = only(model)
            await until(lambda: instance.is_up)
            # Out of the queue, as if a batch were running: what comes back is given to nobody else.
            model._queue.take_back(instance)
            callers = [Caller(0.0), Caller(0.0)]
            for caller in callers:
                model.budget.take(caller.held_bytes)
                model._responder.in_flight += 1
            batch = Batch(list(callers))
            if instance.prepare is not None:
                instance.prepare(batch, monotonic_ns())
                assert batch.inputs is not None
                assert batch.inputs["x"].shape == (2, 1)
            known = instance.run(batch)
            assert (known is not None) == (kind == "inline")
            if known is not None:
                model._responder.settle(known)
            for caller in callers:
                assert list(await caller.outputs()) == ["y"]
            assert model.is_drained

    asyncio.run(asyncio.wait_for(test(), 3 * WAIT_S))


@pytest.mark.parametrize("kind", KINDS)
def test_who_waits_for_an_idle_instance_is_called_back_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with serving_kind(kind, tmp_path, monkeypatch) as model:
            instance = only(model)
            await until(lambda: instance.is_up)
            calls: list[bool] = []
            instance.when_idle(lambda: calls.append(instance.is_idle))
            assert calls == [True]
            model._queue.take_back(instance)
            caller = Caller(0.0)
            model._responder.admit(caller)
            known = instance.run(Batch([caller]))
            # A thread may be ended at any time, since it finishes its batches first.
            is_idle = kind in ("inline", "thread")
            assert instance.is_idle == is_idle
            instance.when_idle(lambda: calls.append(instance.is_idle))
            assert len(calls) == 1 + is_idle
            if known is not None:
                model._responder.settle(known)
            assert list(await caller.outputs()) == ["y"]
            await until(lambda: len(calls) == 2)
            if known is None:
                # The instance is back in the queue, and runs this one too.
                another = Caller(0.0)
                model.submit(another)
                await another.outputs()
            assert calls == [True, True]

    asyncio.run(asyncio.wait_for(test(), 3 * WAIT_S))


def test_who_waits_for_an_idle_instance_is_called_back_at_its_end() -> None:
    def endless(inputs: Arrays, requester: Requester) -> Iterator[Step]:
        while True:
            yield Delay(60.0)

    async def test() -> None:
        calls: list[bool] = []
        with loaded(replace(spec(), max_batch_size=8), Steppers(endless)) as model:
            instance = only(model)
            model.submit(Caller(0.0))
            await until(lambda: not instance.is_idle)
            instance.when_idle(lambda: calls.append(instance.is_idle))
            assert calls == []
        assert calls == [True]

    asyncio.run(asyncio.wait_for(test(), 3 * WAIT_S))
