"""Requests that follow a compiled plan get the same responses as without it, whatever happens to them.

Each graph is there twice. The second one has ``max_inflight_requests``, so that ``EnsembleRun`` runs its requests.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.execution.ensemble.fast_run import FastRun
from naiad.execution.ensemble.model import EnsembleModel
from naiad.execution.ensemble.run import EnsembleRun
from naiad.request import Outputs, RequestOptions
from support.event_loops import until
from support.explicit_manager import House, play
from support.kept_objects import kept
from support.loaded_models import Caller
from support.python_models import HEAD
from support.served_ensembles import step
from support.served_models import tensor

# A value is 1000 * (steps that it has passed) + 100 * (the step that is to do something special) + what that is.
ODD = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        value = int(x.flat[0])
        what = value % 100 if value // 100 % 10 == value // 1000 else 0
        out = pb_utils.Tensor("OUTPUT0", x + np.float32(1000))
        if what == 1:
            return pb_utils.InferenceResponse([out], pb_utils.TritonError("it is a one"))
        if what == 2:
            return pb_utils.InferenceResponse([])
        if what == 6:
            return pb_utils.InferenceResponse([out])
        if what == 3:
            again = pb_utils.Tensor("OUTPUT1", x)
            return pb_utils.InferenceResponse([out, again], parameters={"sequence_id": 5, "other": "x"})
        if what == 4:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", (x + 1000).astype(np.float64))])
        if what == 5:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.concatenate([x, x], axis=1) + 1000)])
        return pb_utils.InferenceResponse([out, pb_utils.Tensor("OUTPUT1", x + np.float32(1000))])
"""
)
SPECIAL = (0, 1, 2, 3, 4, 5, 6)
GRAPHS = {
    "chain": [
        step("odd", {"INPUT0": "IN"}, {"OUTPUT0": "one"}),
        step("odd", {"INPUT0": "one"}, {"OUTPUT0": "two"}),
        step("odd", {"INPUT0": "two"}, {"OUTPUT0": "OUT"}),
    ],
    "diamond": [
        step("odd", {"INPUT0": "left", "INPUT1": "right"}, {"OUTPUT0": "OUT"}),
        step("odd", {"INPUT0": "IN"}, {"OUTPUT0": "left"}),
        step("odd", {"INPUT0": "same"}, {"OUTPUT0": "right"}),
        step("same", {"INPUT0": "IN"}, {"OUTPUT0": "same"}),
    ],
    # Rows of two values do not fit the first step, and the other one is not begun.
    "narrow": [
        step("one_value", {"INPUT0": "IN"}, {"OUTPUT0": "left"}),
        step("odd", {"INPUT0": "IN"}, {"OUTPUT0": "right"}),
        step("odd", {"INPUT0": "left", "INPUT1": "right"}, {"OUTPUT0": "OUT"}),
    ],
    "pair": [
        step("odd", {"INPUT0": "IN"}, {"OUTPUT0": "one", "OUTPUT1": "other"}),
        step("odd", {"INPUT0": "other", "INPUT1": "one"}, {"OUTPUT1": "OUT"}),
    ],
    # Both first steps respond inside of ``submit``, while the run begins.
    "fork": [
        step("same", {"INPUT0": "IN"}, {"OUTPUT0": "left"}),
        step("same", {"INPUT0": "IN"}, {"OUTPUT0": "right"}),
        step("odd", {"INPUT0": "left"}, {"OUTPUT0": "one"}),
        step("odd", {"INPUT0": "right"}, {"OUTPUT0": "other"}),
        step("odd", {"INPUT0": "one", "INPUT1": "other"}, {"OUTPUT0": "OUT"}),
    ],
    "inline": [
        step("same", {"INPUT0": "IN"}, {"OUTPUT0": "one"}),
        step("same", {"INPUT0": "one"}, {"OUTPUT0": "two"}),
        step("odd", {"INPUT0": "two", "INPUT1": "one"}, {"OUTPUT0": "three"}),
        step("same", {"INPUT0": "three"}, {"OUTPUT0": "OUT"}),
    ],
}


def write(found: House) -> None:
    """The members, and each graph with a compiled plan and without."""
    one, more = tensor("INPUT0", "TYPE_FP32", "-1"), tensor("INPUT1", "TYPE_FP32", "-1", "optional: true")
    made, given = tensor("OUTPUT0", "TYPE_FP32", "-1"), tensor("IN", "TYPE_FP32", "-1")
    sizes = "max_batch_size: 8 dynamic_batching { }"
    second = tensor("OUTPUT1", "TYPE_FP32", "-1")
    found.write("odd", f'backend: "python" {sizes} input [ {one}, {more} ] output [ {made}, {second} ]')
    (found.repository / "odd" / "1" / "model.py").write_text(ODD)
    found.write("same", f'backend: "identity" max_batch_size: 8 input [ {one} ] output [ {made} ]')
    two = f"input [ {tensor('INPUT0', 'TYPE_FP32', '1')} ] output [ {tensor('OUTPUT0', 'TYPE_FP32', '1')} ]"
    found.write("one_value", f'backend: "identity" max_batch_size: 8 {two}')
    out = tensor("OUT", "TYPE_FP32", "-1")
    for name, steps in GRAPHS.items():
        for suffix, limit in (("", ""), ("_by_rules", "max_inflight_requests: 1000")):
            scheduling = f"ensemble_scheduling {{ {limit} step [ {', '.join(steps)} ] }}"
            found.write(
                name + suffix,
                f'platform: "ensemble" max_batch_size: 8 input [ {given} ] output [ {out} ] {scheduling}',
            )


async def ensemble(found: House, name: str) -> EnsembleModel:
    await found.manager.load_model(name)
    model = found.engine.find(name, None)
    assert isinstance(model, EnsembleModel)
    return model


def asked(value: float, rows: int = 1, columns: int = 1) -> Caller:
    one = Caller(value, options=RequestOptions(("OUT",), rows, (("IN", (columns,)),)))
    one.inputs = {"IN": np.full((rows, columns), value, np.float32)}
    return one


def what_came(one: Caller, name: str) -> tuple[Any, ...]:
    """The one answer of a request, fit for being compared."""
    ((outputs, error),) = one.answers
    if error is not None:
        return type(error), str(error).replace(f"'{name}'", "'it'"), error.reason
    parameters = dict(outputs.parameters) if isinstance(outputs, Outputs) else {}
    return tuple((n, a.dtype.name, a.shape, a.tobytes()) for n, a in outputs.items()), parameters


def counts(model: Any) -> tuple[int, ...]:
    counted = model.statistics
    return (
        counted.success.count,
        counted.failure.count,
        counted.inference_count,
        counted.queue.count,
        counted.compute_infer.count,
        sum(batch.compute_infer.count for batch in counted.batches.values()),
        *counted.failures.values(),
    )


def runs(found: House) -> tuple[int, int]:
    """How many requests follow a compiled plan, and how many the rules."""
    everything = kept(found)
    return sum(type(one) is FastRun for one in everything), sum(type(one) is EnsembleRun for one in everything)


async def go_through(found: House, name: str, requests: Sequence[Caller], cancelled: Sequence[int]) -> list[Any]:
    """All requests at once through one ensemble; what came of each, and what was counted of the ensemble."""
    model = await ensemble(found, name)
    before = counts(model)
    for number, one in enumerate(requests):
        model.submit(one)
        if number in cancelled:
            model.cancel(one)
    await until(lambda: all(one.answers for one in requests))
    await until(lambda: not any(member.in_flight for member in (model, *model.members)))
    budget = found.manager.budget
    assert (budget.requests, budget.bytes, runs(found)) == (0, 0, (0, 0))
    counted = [now - then for now, then in zip(counts(model), before, strict=True)]
    return [*(what_came(one, name) for one in requests), counted]


@pytest.mark.parametrize("name", GRAPHS)
def test_a_compiled_plan_gives_what_the_rules_give(tmp_path: Path, name: str) -> None:
    async def test(found: House) -> None:
        write(found)
        dice = random.Random(1)
        told = [
            (1000 * 0 + 100 * where + what, rows, columns)
            for what in SPECIAL
            for where in (0, 1, 2)
            for rows, columns in ((1, 1), (3, 1), (1, 2))
        ]
        dice.shuffle(told)
        cancelled = dice.sample(range(len(told)), 6)
        both = [
            await go_through(found, which, [asked(*one) for one in told], cancelled)
            for which in (name, f"{name}_by_rules")
        ]
        assert both[0] == both[1]
        # All of the kinds are among them.
        kinds = {type(one[0]) if isinstance(one[0], tuple) else one[0] for one in both[0][:-1]}
        assert {kind.__name__ for kind in kinds} >= {"tuple", "BackendError", "CancelledError"}
        assert any(one[1] and isinstance(one[1], dict) for one in both[0][:-1])

    play(tmp_path, test)


def test_requests_follow_a_compiled_plan_until_they_need_decisions(tmp_path: Path) -> None:
    async def test(found: House) -> None:
        write(found)
        compiled, rules = await ensemble(found, "chain"), await ensemble(found, "chain_by_rules")
        ordinary, wrong, other = asked(0), asked(1), asked(0)
        for model, one in ((compiled, ordinary), (compiled, wrong), (rules, other)):
            model.submit(one)
        assert runs(found) == (2, 1)
        prior = RequestOptions(("OUT",), 1, (("IN", (1,)),), priority=1)
        says_more = asked(0)
        says_more.options = prior
        compiled.submit(says_more)
        assert runs(found) == (2, 2)
        # A cancelled request is switched, too.
        gone = asked(0)
        compiled.submit(gone)
        compiled.cancel(gone)
        assert runs(found) == (2, 2)
        await until(lambda: all(one.answers for one in (ordinary, wrong, other, says_more, gone)))
        assert ordinary.answers[0][0]["OUT"].tolist() == [[3000.0]]
        assert "it is a one" in str(wrong.answers[0][1])
        assert "step 0 (model 'odd')" in str(wrong.answers[0][1])
        assert "cancelled" in str(gone.answers[0][1])
        await until(lambda: not found.engine.find("odd", None).in_flight)

    play(tmp_path, test)
