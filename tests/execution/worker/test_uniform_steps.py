"""Steps of different sequences travel to a process in one piece where they are of one kind, and are told apart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.config.sequence import run_spec
from naiad.config.spec import ControlSpec, StateSpec
from naiad.execution.sequence.step import SequenceRequest, SequenceRequestFactory
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.request import RequestOptions
from naiad.scheduling.sequence.slots import Sequence
from naiad.worker.ipc import frames as protocol
from support.event_loops import WAIT_S, run
from support.loaded_models import tensor
from support.noted_requests import submit
from support.sequence_models import CONTROLS, Caller, model_spec, sequences
from support.worker_models import serving, write_model

SECTION = """
sequence_batching {{ {} control_input [
    {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }},
    {{ name: "END" control [ {{ kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] }} ] }},
    {{ name: "READY" control [ {{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }} ] }},
    {{ name: "CORRID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT32 }} ] }}
] }}
"""
# Answers what it was told, as an error; empty rows with a tensor.
TOLD = """
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, r):
        values = {t.name(): t.as_numpy().ravel().tolist() for t in r.inputs()}
        if not values["READY"][0]:
            assert (r.correlation_id(), r.flags(), values["CORRID"]) == (0, 0, [0]), (r.correlation_id(), values)
            return pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))])
        said = [r.request_id(), r.correlation_id(), r.flags(), r.parameters(), r.timeout()]
        told = [int(values[name][0]) for name in ("START", "END", "CORRID")]
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(repr([said, told, values["x"]])))
"""


def told(caller: Caller) -> Any:
    _, error = caller.answers[0]
    assert error is not None
    text = str(error)
    return eval(text[text.index("[[") :])


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_each_step_has_its_own_facts(tmp_path: Path, strategy: str) -> None:
    write_model(tmp_path, TOLD, SECTION.format(strategy))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            model: Any = engine.find("m", "")
            for start, end in ((True, False), (False, False), (False, True), (True, True)):
                callers = [Caller(n, 10.0 + n, start, end) for n in (5, 2**40 + 6, 2**64 - 1)]
                for number, caller in enumerate(callers):
                    caller.id = "x" * number
                # The second is not there in the middle: with direct its slot is empty.
                if not start and not end:
                    del callers[1]
                submit(model, *callers)
                for caller in callers:
                    await caller.done.wait()
                    key = caller.options.correlation_id
                    flags, corrid = start + 2 * end, int(np.uint64(key).astype(np.int32))
                    assert told(caller) == [
                        [caller.id, key, flags, "{}", 0],
                        [start, end, corrid],
                        [float(caller.inputs["x"][0, 0])],
                    ]

    run(test())


@pytest.mark.parametrize(
    "options",
    [{"parameters": {"k": 1}}, {"timeout_us": 5_000_000}, {"parameters": {"k": "v" * 300}, "timeout_us": 9_000_000}],
)
def test_steps_of_other_kinds_are_told_apart_too(tmp_path: Path, options: dict[str, Any]) -> None:
    write_model(tmp_path, TOLD, SECTION.format("direct { }"))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            model: Any = engine.find("m", "")
            callers = [Caller(n, n, True) for n in (1, 2, 3)]
            known = callers[1].options
            own = RequestOptions(known.outputs, 1, known.shape_key, flags=1, correlation_id=2, **options)
            callers[1].options = own
            submit(model, *callers)
            for caller in callers:
                await caller.done.wait()
                given = caller.options
                parameters = "{}" if not given.parameters else f'{{"k":{told_json(given.parameters["k"])}}}'
                assert told(caller)[0] == ["", given.correlation_id, 1, parameters, given.timeout_us]

    run(test())


def told_json(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def steps_of(section: Any, *callers: Caller, **more: Any) -> tuple[Any, SequenceRequestFactory, list[Any]]:
    found = model_spec(section, **more)
    maker = SequenceRequestFactory(found, section)
    steps = []
    for caller in callers:
        step: SequenceRequest = maker.make(caller)
        step.sequence = Sequence(caller.options.correlation_id)
        maker.complete(step)
        steps.append(step)
    return run_spec(found), maker, steps


def kinds(frames: list[OutgoingFrame]) -> list[int]:
    return [protocol.FRAME.unpack_from(data)[0] for data, _ in frames]


def test_steps_of_any_sequences_have_one_form_and_one_frame() -> None:
    callers = [Caller(n, n, n % 2 == 0) for n in range(1, 5)]
    spec, maker, steps = steps_of(sequences(), *callers)
    writer = BatchWriter(spec)
    for expected in ([protocol.SCHEMA, protocol.EXECUTE_UNIFORM], [protocol.EXECUTE_UNIFORM]):
        frames: list[OutgoingFrame] = []
        writer.write(1, 2, [*steps, maker.empty(steps[0], 0)], frames)
        assert kinds(frames) == expected


@pytest.mark.parametrize(
    ("section", "callers"),
    [
        (sequences(controls=CONTROLS[:3]), [Caller("text", 1, True), Caller(2, 2, True)]),
        (sequences(controls=[ControlSpec("CORRID", tensor("CORRID", "BYTES"))]), [Caller("a", 1), Caller("b", 2)]),
        (
            sequences(states=(StateSpec(tensor("S", "BYTES"), tensor("S_OUT", "BYTES"), (1,)),)),
            [Caller(1, 1, True), Caller(2, 2, True)],
        ),
    ],
)
def test_what_is_not_of_one_kind_is_described_request_by_request(section: Any, callers: list[Caller]) -> None:
    spec, _, steps = steps_of(section, *callers)
    frames: list[OutgoingFrame] = []
    BatchWriter(spec).write(1, 2, steps, frames)
    assert kinds(frames)[-1] == protocol.EXECUTE


def test_states_and_controls_lie_where_the_form_says() -> None:
    states = (StateSpec(tensor("S", "FP64", (3,)), tensor("S_OUT", "FP64", (3,)), (3,)),)
    callers = [Caller(n, n, True) for n in (1, 2)]
    spec, maker, steps = steps_of(sequences(states=states), *callers)
    frames: list[OutgoingFrame] = []
    BatchWriter(spec).write(1, 2, [*steps, maker.empty(steps[0], 0)], frames)
    whole, _ = frames[-1]
    head = protocol.FRAME.size
    first, count, _, id_bytes, column = protocol.UNIFORM.unpack_from(whole, head)
    assert (first, count, id_bytes, column) == (2, 3, 0, protocol.COLUMN_STEPS)
    at = head + -(-(protocol.UNIFORM.size + 3 * protocol.STEP.size) // protocol.ALIGNMENT) * protocol.ALIGNMENT
    said = [protocol.STEP.unpack_from(whole, head + protocol.UNIFORM.size + n * protocol.STEP.size) for n in range(3)]
    assert said == [(1, 1, 0), (2, 1, 0), (0, 0, 0)]
    names = ["x", *(control.tensor.name for control in CONTROLS), "S"]
    assert [list(step.inputs) for step in steps] == [names] * 2
    for row in range(3):
        for name in names:
            given = maker.empty(steps[0], 0) if row == 2 else steps[row]
            content = given.inputs[name].tobytes()
            assert whole[at : at + len(content)] == content, (row, name)
            at += protocol.ALIGNMENT
    assert at == len(whole)


COUNTS = """
    def execute(self, requests):
        ready = [bool(pb_utils.get_input_tensor_by_name(r, "READY").as_numpy()[0, 0]) for r in requests]
        told = np.array([[sum(ready)]], np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", told)]) for _ in requests]
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_few_who_wait_are_joined_by_those_who_come_with_the_answers(tmp_path: Path, loop: str) -> None:
    write_model(tmp_path, COUNTS, SECTION.format("direct { }"))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            model: Any = engine.find("m", "")
            begun = [Caller(n, 0, True) for n in range(1, 6)]
            submit(model, *begun)
            assert [await caller.answer() for caller in begun] == [5] * 5
            for _ in range(20):
                one, two, waiting, coming, last = (Caller(n, 0) for n in range(1, 6))
                submit(model, one, two)
                await asyncio.sleep(0)
                submit(model, waiting)
                with answers_beside(model, lambda coming=coming: model.submit(coming)):
                    assert await one.answer() == await two.answer() == 2
                # As many wait as are answered: it runs with what is there.
                submit(model, last)
                assert [await caller.answer() for caller in (waiting, coming)] == [2] * 2
                assert await last.answer() == 1

    run(test(), loop)


@contextlib.contextmanager
def answers_beside(model: Any, act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` in the turn of the loop that has the next answer of a model's process, before or after it."""
    loop = asyncio.get_running_loop()
    descriptor = os.dup(model.instances[0]._sender.channel._connection.fileno())

    def came() -> None:
        loop.remove_reader(descriptor)
        act()

    try:
        assert select.select([descriptor], [], [], WAIT_S)[0]
        loop.add_reader(descriptor, came)
        yield
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
