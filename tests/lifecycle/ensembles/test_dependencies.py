"""What an ensemble remembers of its requests is gone when they are answered, whatever became of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from naiad.cache.local import LocalCache
from naiad.errors import QueueFullError
from naiad.execution.ensemble.model import EnsembleModel
from naiad.execution.model.cache import ModelCache
from naiad.execution.model.loaded_model import LoadedModel
from naiad.scheduling.admission import RequestBudget
from support.event_loops import until
from support.explicit_manager import CONFIG, SLOW, House, answered, caller, play
from support.kept_objects import kept_of
from support.served_ensembles import step
from support.served_models import tensor

CACHED = "response_cache { enable: true }"


def ensemble(
    member: str, kind: str = "TYPE_FP32", batch: int = 4, more: str = "", names: str = "INPUT0 OUTPUT0"
) -> str:
    given, made = names.split()
    return f"""platform: "ensemble" max_batch_size: {batch} {more}
        input [ {tensor("INPUT0", kind, "1")} ] output [ {tensor("OUTPUT0", kind, "1")} ]
        ensemble_scheduling {{ step [ {step(member, {given: "INPUT0"}, {made: "OUTPUT0"})} ] }}"""


async def loaded(found: House, member: str, config: str, text: str) -> EnsembleModel:
    found.write(member, config)
    found.write("e", text)
    await found.manager.load_model("e")
    model = found.engine.find("e", None)
    assert isinstance(model, EnsembleModel)
    return model


def test_members_of_before_are_forgotten_with_their_last_request(tmp_path: Path) -> None:
    async def test(found: House) -> None:
        model = await loaded(found, "slow", SLOW, ensemble("slow"))
        first, second = caller(1), caller(2)
        model.submit(first)
        found.write("slow", CONFIG)
        await found.manager.load_model("slow")
        model.submit(second)
        await answered(second)
        assert not first.answers
        assert kept_of(model, LoadedModel) == 2
        await answered(first)
        await until(lambda: kept_of(model, LoadedModel) == 1)
        assert model.in_flight == 0

    play(tmp_path, test)


@pytest.mark.slow
def test_a_request_that_is_refused_is_not_waited_for_by_the_cache(tmp_path: Path) -> None:
    budget = RequestBudget(max_per_model=1)

    async def test(found: House) -> None:
        model = await loaded(found, "slow", SLOW, ensemble("slow", more=CACHED))
        first = caller(1)
        model.submit(first)
        for value in (2, 3):
            with pytest.raises(QueueFullError):
                model.submit(caller(value))
        await answered(first)
        for value in (2, 3):
            again = caller(value)
            model.submit(again)
            await answered(again)
        assert (model.in_flight, budget.requests, budget.bytes) == (0, 0, 0)

    play(tmp_path, test, cache=LocalCache(1 << 20), budget=budget)


def test_an_ensemble_that_is_decoupled_has_no_cache(tmp_path: Path) -> None:
    square = f"""backend: "square" model_transaction_policy {{ decoupled: true }}
        input [ {tensor("IN", "TYPE_INT32", "1")} ] output [ {tensor("OUT", "TYPE_INT32", "1")} ]"""

    async def test(found: House) -> None:
        model = await loaded(found, "sq", square, ensemble("sq", "TYPE_INT32", 0, CACHED, "IN OUT"))
        assert model.spec.decoupled
        assert kept_of(model, ModelCache) == 0

    play(tmp_path, test, cache=LocalCache(1 << 20))


def test_what_a_sequence_of_requests_gets_is_never_kept(tmp_path: Path) -> None:
    async def test(found: House) -> None:
        model = await loaded(found, "id", CONFIG, ensemble("id", more=CACHED))
        for identity in (0, 0, 7, 7, "a", "a"):
            one = caller(5)
            one.options.correlation_id = identity
            model.submit(one)
            await until(lambda asked=one: bool(asked.answers))
            assert np.array_equal(one.answers[0][0]["OUTPUT0"], [[5]])
        assert (model.statistics.cache_hit.count, model.statistics.cache_miss.count) == (1, 1)

    play(tmp_path, test, cache=LocalCache(1 << 20))
