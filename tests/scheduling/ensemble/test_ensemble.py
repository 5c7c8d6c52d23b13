"""Ensembles as graphs: what fits together, what a request needs, and in which order things happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.config.ensemble import WHEN, EnsembleSpec, StepSpec
from naiad.config.spec import ModelSpec, TensorSpec
from naiad.scheduling.ensemble.graph import EnsembleError, Graph, build
from naiad.scheduling.ensemble.plan import Plan
from naiad.scheduling.ensemble.progress import MISSING, NOT_GIVEN, SKIPPED, EnsembleProgress, Task
from naiad.tensor.dtypes import BY_WIRE


def tensors(batch: int, **found: str) -> dict[str, TensorSpec]:
    """Tensors by name: "FP32 4 2", "?BOOL 1" for one that is optional."""
    made = {}
    for name, text in found.items():
        wire, *dims = text.removeprefix("?").split()
        numbers = tuple(int(dim) for dim in dims)
        shape = (-1, *numbers) if batch else numbers
        made[name] = TensorSpec(name, BY_WIRE[wire], numbers, shape, optional=text.startswith("?"))
    return made


def model(
    name: str = "m",
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    batch: int = 0,
    decoupled: bool = False,
    steps: Sequence[StepSpec] = (),
) -> ModelSpec:
    return ModelSpec(
        name=name,
        platform="",
        backend="",
        max_batch_size=batch,
        inputs=tensors(batch, **({"I": "FP32 4"} if inputs is None else inputs)),
        outputs=tensors(batch, **({"O": "FP32 4"} if outputs is None else outputs)),
        instance_groups=(),
        decoupled=decoupled,
        ensemble=EnsembleSpec(tuple(steps)) if steps else None,
    )


def step(name: str, inputs: Mapping[str, str], outputs: Mapping[str, str], index: int = 0) -> StepSpec:
    return StepSpec(index, name, None, tuple(sorted(inputs.items())), tuple(sorted(outputs.items())))


def ensemble(*steps: StepSpec, inputs: Any = None, outputs: Any = None, batch: int = 0) -> ModelSpec:
    numbered = [replace(found, index=index) for index, found in enumerate(steps)]
    return model("e", inputs or {"IN": "FP32 4"}, outputs or {"OUT": "FP32 4"}, batch, steps=numbered)


# What fits together

IN_OUT = ({"I": "IN"}, {"O": "OUT"})
TWO = {"I": "FP32 4", "J": "FP32 4"}
REFUSED: dict[str, tuple[ModelSpec, dict[str, ModelSpec], str]] = {
    "no such input": (
        ensemble(step("m", {"X": "IN"}, {"O": "OUT"})),
        {"m": model()},
        "in ensemble e, ensemble tensor IN is mapping to non-existing input X in model m",
    ),
    "an input left out": (
        ensemble(step("m", *IN_OUT)),
        {"m": model(inputs=TWO)},
        "in ensemble e, input J in model m is not mapped to any ensemble tensors",
    ),
    "no such output": (
        ensemble(step("m", {"I": "IN"}, {"X": "OUT"})),
        {"m": model()},
        "in ensemble e, ensemble tensor OUT is mapped from non-existing output X in model m",
    ),
    "datatype of an input": (
        ensemble(step("m", *IN_OUT)),
        {"m": model(inputs={"I": "INT32 4"})},
        "in ensemble e, ensemble tensor IN: inconsistent data type: TYPE_FP32 is inferred from model e while "
        "TYPE_INT32 is inferred from model m",
    ),
    "datatype between steps": (
        ensemble(step("m", {"I": "IN"}, {"O": "t"}), step("n", {"I": "t"}, {"O": "OUT"})),
        {"m": model(), "n": model(inputs={"I": "FP64 4"})},
        "in ensemble e, ensemble tensor t: inconsistent data type: TYPE_FP32 is inferred from model m while TYPE_FP64 "
        "is inferred from model n",
    ),
    "shape": (
        ensemble(step("m", *IN_OUT), batch=8),
        {"m": model(outputs={"O": "FP32 5"}, batch=8)},
        "in ensemble e, ensemble tensor OUT: inconsistent shape: [-1,4] is inferred from model e while [-1,5] is "
        "inferred from model m",
    ),
    "batch size": (
        ensemble(step("m", *IN_OUT), batch=8),
        {"m": model(batch=4)},
        "ensemble e allows maximum batch size 8, but it contains model m which only allows maximum batch size to be 4",
    ),
    "two decoupled models, side by side": (
        ensemble(
            step("d", {"I": "IN"}, {"O": "t"}),
            step("d", {"I": "IN"}, {"O": "u"}),
            step("m", {"I": "t", "J": "u"}, {"O": "OUT"}),
        ),
        {"d": model(decoupled=True), "m": model(inputs=TWO)},
        "in ensemble e, step of model 'm' receives inputs originated from different decoupled models",
    ),
    "outputs of two decoupled models": (
        ensemble(
            step("d", {"I": "IN"}, {"O": "OUT"}),
            step("d", {"I": "IN"}, {"O": "P"}),
            outputs={"OUT": "FP32 4", "P": "FP32 4"},
        ),
        {"d": model(decoupled=True)},
        "in ensemble e, step of model 'e' receives inputs originated from different decoupled models",
    ),
    "a condition that is no truth": (
        ensemble(step("m", {"I": "IN", "when": "IN"}, {"O": "OUT"})),
        {"m": model()},
        "in ensemble e, step 0 (model 'm') runs when 'IN' is true, but model e says that it is TYPE_FP32: it has to be "
        "TYPE_BOOL",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    spec, members, text = REFUSED[name]
    with pytest.raises(EnsembleError) as caught:
        build(spec, members)
    assert str(caught.value) == text


FITS: dict[str, tuple[ModelSpec, dict[str, ModelSpec]]] = {
    "an optional input left out": (ensemble(step("m", *IN_OUT)), {"m": model(inputs={"I": "FP32 4", "J": "?FP32 4"})}),
    "variable dims": (ensemble(step("m", *IN_OUT)), {"m": model(inputs={"I": "FP32 -1"})}),
    "a model without batches in an ensemble with": (ensemble(step("m", *IN_OUT), batch=8), {"m": model()}),
    "a model with batches in an ensemble without": (ensemble(step("m", *IN_OUT)), {"m": model(batch=8)}),
    "the batch dimension spelled out": (
        ensemble(step("m", *IN_OUT), inputs={"IN": "FP32 -1 4"}, outputs={"OUT": "FP32 -1 4"}),
        {"m": model(batch=8)},
    ),
    "an input of a model that is called as a condition is": (
        ensemble(step("m", {"I": "IN", "when": "IN"}, {"O": "OUT"})),
        {"m": model(inputs={"I": "FP32 4", "when": "FP32 4"})},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_what_fits_is_taken(name: str) -> None:
    graph = build(*FITS[name])
    assert [s.conditions for s in graph.steps] == [()]
    assert not graph.is_decoupled


def test_decoupled_models_one_behind_the_other_are_bounded() -> None:
    names = ["IN", *(f"t{i}" for i in range(16)), "OUT"]
    steps = [step("d", {"I": one}, {"O": other}) for one, other in pairwise(names)]
    with pytest.raises(EnsembleError, match="more than 16 decoupled models one behind the other"):
        build(ensemble(*steps), {"d": model(decoupled=True)})


# Who reads the inputs of the ensemble

CHAIN = (step("m", {"I": "IN"}, {"O": "t"}), step("m", {"I": "t"}, {"O": "OUT"}))
READERS: dict[str, tuple[ModelSpec, int]] = {
    "the first step": (ensemble(*CHAIN), 0),
    "wherever it is written": (ensemble(*reversed(CHAIN)), 1),
    "two inputs of one step": (
        ensemble(step("n", {"I": "IN", "J": "IN2"}, {"O": "OUT"}), inputs={"IN": "FP32 4", "IN2": "FP32 4"}),
        0,
    ),
    "one input twice": (ensemble(step("n", {"I": "IN", "J": "IN"}, {"O": "OUT"})), -1),
    "two steps with one input": (
        ensemble(step("m", {"I": "IN"}, {"O": "t"}), step("n", {"I": "IN", "J": "t"}, {"O": "OUT"})),
        -1,
    ),
    "two steps with one input each": (
        ensemble(
            step("m", {"I": "IN"}, {"O": "t"}),
            step("n", {"I": "IN2", "J": "t"}, {"O": "OUT"}),
            inputs={"IN": "FP32 4", "IN2": "FP32 4"},
        ),
        -1,
    ),
    "an input that is an output": (
        ensemble(step("m", *IN_OUT), outputs={"OUT": "FP32 4", "IN": "FP32 4"}),
        -1,
    ),
    "a condition": (
        ensemble(
            step("m", {"I": "IN", WHEN: "USE"}, {"O": "OUT"}),
            inputs={"IN": "FP32 4", "USE": "BOOL 1"},
        ),
        -1,
    ),
}


@pytest.mark.parametrize("case", READERS)
def test_the_step_that_alone_reads_the_inputs(case: str) -> None:
    spec, wanted = READERS[case]
    members = {"m": model(), "n": model(inputs={"I": "FP32 4", "J": "FP32 4"})}
    assert build(spec, members).only_reader == wanted


# What a request needs


def diamond() -> Graph:
    """a -> (b, c) -> OUT and P; d for nothing but Q."""
    return build(
        ensemble(
            step("two", {"I": "t", "J": "u"}, {"O": "OUT"}),
            step("one", {"I": "IN"}, {"O": "s"}),
            step("one", {"I": "s"}, {"O": "t"}),
            step("one", {"I": "s"}, {"O": "u"}),
            step("one", {"I": "s"}, {"O": "Q"}),
            outputs={"OUT": "FP32 4", "Q": "FP32 4"},
        ),
        {"one": model(), "two": model(inputs=TWO)},
    )


def test_only_what_outputs_depend_on_is_needed() -> None:
    graph = diamond()
    assert {s.index for s in Plan(graph, ["OUT"], ["IN"]).needed} == {0, 1, 2, 3}
    assert {s.index for s in Plan(graph, ["Q"], ["IN"]).needed} == {1, 4}
    assert {s.index for s in Plan(graph, ["Q", "OUT"], ["IN"]).needed} == {0, 1, 2, 3, 4}


def test_steps_that_do_not_depend_on_each_other_run_at_the_same_time() -> None:
    progress = EnsembleProgress(Plan(diamond(), ["OUT"], ["IN"]), bool)
    (first,) = progress.begin({"IN": "in"})
    second = progress.wrote(first, {"O": "s"})
    assert sorted(task.step.index for task in second) == [2, 3]
    assert progress.wrote(second[0], {"O": "t"}) == []
    (last,) = progress.wrote(second[1], {"O": "u"})
    assert progress.responses() == []
    assert progress.wrote(last, {"O": "out"}) == []
    assert progress.responses() == [{"OUT": "out"}]
    assert progress.responses() == []
    assert progress.open == 0


def test_a_long_chain_of_skipped_steps_needs_no_deep_stack() -> None:
    names = ["t0", *(f"t{i}" for i in range(1, 1000)), "OUT"]
    steps = [step("m", {"I": "IN", "when": "C"}, {"O": "t0"})]
    steps += [step("m", {"I": one}, {"O": other}) for one, other in pairwise(names)]
    spec = ensemble(*steps, inputs={"IN": "FP32 4", "C": "BOOL 1"})
    progress = EnsembleProgress(Plan(build(spec, {"m": model()}), ["OUT"], ["IN", "C"]), bool)
    assert progress.begin({"IN": "in", "C": False}) == []
    assert progress.responses() == [{"OUT": SKIPPED}]


def test_a_step_outside_a_decoupled_one_runs_once_though_responses_came_before_it() -> None:
    spec = ensemble(
        step("d", {"I": "IN"}, {"O": "s"}),
        step("m", {"I": "IN"}, {"O": "t"}),
        step("n", {"I": "t"}, {"O": "u"}),
        step("two", {"I": "s", "J": "u"}, {"O": "OUT"}),
    )
    members = {"d": model(decoupled=True), "m": model(), "n": model(), "two": model(inputs=TWO)}
    progress = EnsembleProgress(Plan(build(spec, members), ["OUT"], ["IN"]), bool)
    decoupled, first = sorted(progress.begin({"IN": "in"}), key=lambda task: task.step.index)
    for response in range(3):
        assert progress.responded(decoupled, {"O": f"s{response}"}) == []
    progress.ended(decoupled)
    (second,) = progress.wrote(first, {"O": "t"})
    assert second.step.index == 2
    last = progress.wrote(second, {"O": "u"})
    assert sorted(task.frame.values[decoupled.step.outputs[0][1]] for task in last) == ["s0", "s1", "s2"]
    for number, task in enumerate(last):
        progress.wrote(task, {"O": f"out{number}"})
    assert len(progress.responses()) == 3
    assert (progress.open, progress.frames) == (0, 0)


# Against a naive executor


@dataclass
class House:
    """A random ensemble, and how its models behave."""

    spec: ModelSpec
    members: list[ModelSpec]
    responses: dict[int, int] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()

    def output(self, index: int, inputs: Mapping[str, Any], response: int) -> dict[str, Any]:
        """What step ``index`` answers: a value that tells all that it was made of. ``silent`` ones leave it out."""
        return {} if index in self.silent else {"O": (index, response, tuple(sorted(inputs.items())))}


@st.composite
def houses(draw: st.DrawFn, decoupled: bool = True) -> House:
    """Steps in any order; each reads up to three tensors; some only run when or unless a condition holds."""
    count = draw(st.integers(1, 8))
    inputs = {"IN": "FP32 4", "MAYBE": "?FP32 4", "C": "?BOOL 1", "D": "BOOL 1"}
    known = ["IN", "MAYBE"]
    steps: list[StepSpec] = []
    members: list[ModelSpec] = []
    for index in range(count):
        read = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        mapped = {f"I{number}": tensor for number, tensor in enumerate(read)}
        optional = {name: draw(st.booleans()) for name in mapped}
        condition = draw(st.sampled_from([None, None, ("when", "C"), ("unless", "C"), ("when", "D")]))
        made = f"t{index}"
        if condition is not None:
            mapped[condition[0]] = condition[1]
        before = [s for s in steps if dict(s.inputs).get("when") == "C" and len(s.outputs) == 1]
        if condition == ("unless", "C") and before and draw(st.booleans()):
            # The other branch of an earlier step.
            made = before[0].outputs[0][1]
        written = [tensor for s in steps for _, tensor in s.outputs]
        readers = [tensor for s in steps for _, tensor in s.inputs]
        if made in written and (written.count(made) > 1 or made in readers or made in mapped.values()):
            made = f"t{index}"
        steps.append(StepSpec(index, f"m{index}", None, tuple(sorted(mapped.items())), (("O", made),)))
        is_decoupled = decoupled and condition is None and draw(st.integers(0, 3)) == 0
        takes = {name: ("?" if optional[name] else "") + "FP32 4" for name in mapped if name in optional}
        members.append(model(f"m{index}", takes, {"O": "FP32 4"}, decoupled=is_decoupled))
        if made not in known:
            known.append(made)
    outputs = {f"t{i}": "FP32 4" for i in range(count) if f"t{i}" in known}
    order = draw(st.permutations(range(count)))
    shuffled = [replace(steps[old], index=new) for new, old in enumerate(order)]
    spec = model("e", inputs, outputs, steps=shuffled)
    responses = {new: draw(st.integers(0, 3)) for new in range(count)}
    silent = frozenset(draw(st.lists(st.integers(0, count - 1), max_size=1)))
    return House(spec, [members[old] for old in order], responses, silent)


def naive(house: House, plan: Plan, given_inputs: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """All responses in order, and whether a decoupled step lacked something; one step after the other."""
    stuck = False

    def settled(env: dict[int, Any], tensor: int) -> Any:
        return env[tensor]

    def why_not(env: dict[int, Any], found: Any) -> Any:
        for tensor, wanted in found.conditions:
            value = settled(env, tensor)
            if value is MISSING:
                return MISSING
            if (value is True) is not wanted:
                return SKIPPED
        for _, tensor, is_optional in found.inputs:
            value = settled(env, tensor)
            if value in (SKIPPED, MISSING) and not is_optional:
                return value
        return None

    def run(position: int, env: dict[int, Any]) -> list[dict[str, Any]]:
        nonlocal stuck
        if position == len(plan.needed):
            return [{name: env[number] for name, number in plan.outputs.items()}]
        found = plan.needed[position]
        (_, target), *_ = found.outputs
        why = why_not(env, found)
        if why is not None:
            if found.is_decoupled:
                stuck = stuck or why is MISSING
                return []
            if target not in env or env[target] is SKIPPED:
                env = {**env, target: why}
            return run(position + 1, env)
        inputs = {n: env[t] for n, t, _ in found.inputs if env[t] not in (SKIPPED, MISSING, NOT_GIVEN)}
        all_responses: list[dict[str, Any]] = []
        for response in range(house.responses[found.index] if found.is_decoupled else 1):
            value = house.output(found.index, inputs, response).get("O", MISSING)
            all_responses += run(position + 1, {**env, target: value})
        return all_responses

    env = {number: given_inputs.get(name, NOT_GIVEN) for name, number in plan.graph.inputs.items()}
    return run(0, env), stuck


def drive(
    house: House, plan: Plan, inputs: Mapping[str, Any], data: st.DataObject
) -> tuple[list[dict[str, Any]], bool]:
    """All responses in order, with steps that answer in any order."""
    progress = EnsembleProgress(plan, bool)
    running: list[tuple[Task, int]] = [(task, 0) for task in progress.begin(inputs)]
    seen: list[dict[str, Any]] = progress.responses()
    started = {(task.frame, task.step.index) for task, _ in running}
    assert len(started) == len(running)
    while running:
        at = data.draw(st.integers(0, len(running) - 1))
        task, response = running.pop(at)
        values = task.frame.values
        absent = (SKIPPED, MISSING, NOT_GIVEN)
        given_inputs = {n: values[t] for n, t, _ in task.step.inputs if values[t] not in absent}
        more: list[Task] = []
        if not task.step.is_decoupled:
            more = progress.wrote(task, house.output(task.step.index, given_inputs, 0), 1)
        elif response < house.responses[task.step.index]:
            more = progress.responded(task, house.output(task.step.index, given_inputs, response), 1)
            running.append((task, response + 1))
        else:
            progress.ended(task)
        for found in more:
            assert found.frame.scope == found.step.scope
            assert (found.frame, found.step.index) not in started
            started.add((found.frame, found.step.index))
        running += [(found, 0) for found in more]
        seen += progress.responses()
        assert progress.open == len({id(found) for found, _ in running})
    if plan.scope:
        assert progress.frames == 0
    return seen, progress.is_stuck


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(houses(), st.booleans(), st.sampled_from([None, True, False]), st.booleans(), st.data())
def test_any_order_of_answers_gives_what_one_step_after_the_other_gives(
    house: House, maybe: bool, c: bool | None, d: bool, data: st.DataObject
) -> None:
    try:
        graph = build(house.spec, house.members)
    except EnsembleError as error:
        assert "originated from different decoupled models" in str(error)
        return
    inputs: dict[str, Any] = {"IN": "in", "D": d}
    if maybe:
        inputs["MAYBE"] = "maybe"
    if c is not None:
        inputs["C"] = c
    wanted = data.draw(st.lists(st.sampled_from(sorted(graph.outputs)), min_size=1, unique=True))
    plan = Plan(graph, wanted, inputs)
    assert drive(house, plan, inputs, data) == naive(house, plan, inputs)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(houses(decoupled=False), st.data())
def test_each_needed_step_runs_at_most_once(house: House, data: st.DataObject) -> None:
    graph = build(house.spec, house.members)
    plan = Plan(graph, sorted(graph.outputs), graph.inputs)
    progress = EnsembleProgress(plan, bool)
    running = progress.begin({"IN": 1, "MAYBE": 2, "C": data.draw(st.booleans()), "D": True})
    ran: list[int] = []
    while running:
        task = running.pop(data.draw(st.integers(0, len(running) - 1)))
        ran.append(task.step.index)
        running += progress.wrote(task, {"O": task.step.index})
    assert len(ran) == len(set(ran))
    assert {*ran} <= {s.index for s in plan.needed}
    assert len(progress.responses()) == 1
