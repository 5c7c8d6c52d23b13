"""Models with sequences: controls, slots, states, and the ends of sequences, in loaded models with real threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import ControlSpec, StateSpec
from naiad.errors import (
    BackendError,
    CancelledError,
    InvalidArgumentError,
    NaiadError,
    RequestTimeoutError,
    ServerStoppingError,
)
from naiad.execution.sequence.model import SequenceModel
from support.event_loops import run, until
from support.kept_objects import kept
from support.loaded_models import FunctionBackend, tensor
from support.noted_requests import submit
from support.sequence_models import Caller, Totals, loaded, model_spec, sequences, standing

strategies = pytest.mark.parametrize("oldest", [False, True], ids=["direct", "oldest"])
DTYPES = ("UINT64", "INT64", "UINT32", "INT32")


class Gate:
    """Runs ``inner`` once it is opened; says how many batches have come."""

    def __init__(self, inner: Totals) -> None:
        self.inner = inner
        self.begun = 0
        self.open = threading.Semaphore(0)

    def __call__(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        self.begun += 1
        assert self.open.acquire(timeout=20)
        return self.inner(inputs, outputs)


@strategies
@pytest.mark.parametrize("size", [0, 4])
def test_each_sequence_adds_up_its_own(oldest: bool, size: int) -> None:
    async def test() -> None:
        section = sequences(oldest=oldest, slots=4 if size else 1)
        with loaded(model_spec(section, size), Totals()) as model:
            callers = [
                Caller(name, 10.0**name * value, value == 1, value == 3, batched=size > 0)
                for value in (1, 2, 3)
                for name in (1, 2, 3, 4, 5)
            ]
            submit(model, *callers)
            found = [await caller.answer() for caller in callers]
            assert found == [10.0**name * total for total in (1, 3, 6) for name in (1, 2, 3, 4, 5)]
            assert standing(model) == 0
            assert model.in_flight == 0
            assert model.budget.requests == model.budget.bytes == 0
            statistics = model.statistics
            assert (statistics.pending, statistics.success.count, statistics.inference_count) == (0, 15, 15)

    run(test())


def test_direct_batches_have_a_row_for_each_slot_up_to_the_last_one() -> None:
    async def test() -> None:
        totals = Totals()
        with loaded(model_spec(sequences()), totals) as model:
            first = [Caller(name, name, start=True) for name in (1, 2, 3)]
            submit(model, *first)
            for caller in first:
                await caller.answer()
            again = Caller(3, 5.0)
            submit(model, again)
            assert await again.answer() == 8.0
            assert [b["READY"].ravel().tolist() for b in totals.batches] == [[1, 1, 1], [0, 0, 1]]
            assert [b["START"].ravel().tolist() for b in totals.batches] == [[1, 1, 1], [0, 0, 0]]
            assert [b["CORRID"].ravel().tolist() for b in totals.batches] == [[1, 2, 3], [0, 0, 3]]
            # Empty rows are no requests, but the model has run them.
            assert model.statistics.inference_count == 4
            assert model.statistics.execution_count == 2

    run(test())


@pytest.mark.parametrize(
    ("wire", "values"), [("INT32", (-1, 7)), ("FP32", (0.5, 2.5)), ("BOOL", (True, False))], ids=["int", "fp", "bool"]
)
def test_controls_have_the_configured_values(wire: str, values: tuple[float, float]) -> None:
    kinds = ("START", "END", "READY")
    controls = tuple(ControlSpec(kind, tensor(kind, wire), values) for kind in kinds)
    seen: list[list[object]] = []

    def note(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        seen.append([inputs[kind].ravel().tolist()[0] for kind in kinds])
        assert all(inputs[kind].shape == (1, 1) for kind in kinds)
        return {"y": inputs["x"]}

    async def test() -> None:
        with loaded(model_spec(sequences(controls=controls)), note) as model:
            for start, end in ((True, False), (False, False), (False, True), (True, True)):
                caller = Caller(9, 1.0, start, end)
                submit(model, caller)
                await caller.answer()
        no, yes = values
        assert seen == [[yes, no, yes], [no, no, yes], [no, yes, yes], [yes, yes, yes]]

    run(test())


@pytest.mark.parametrize("wire", DTYPES)
@pytest.mark.parametrize("name", [7, 2**64 - 1, 2**33 + 5])
def test_numbers_tell_sequences_apart(wire: str, name: int) -> None:
    seen: list[int] = []

    def note(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        seen.append(int(inputs["CORRID"].ravel()[0]))
        return {"y": inputs["x"]}

    async def test() -> None:
        controls = (ControlSpec("CORRID", tensor("CORRID", wire)),)
        with loaded(model_spec(sequences(controls=controls)), note) as model:
            for start in (True, False):
                caller = Caller(name, 1.0, start)
                submit(model, caller)
                await caller.answer()
        assert seen[0] == seen[1] != 0
        bits = np.iinfo(wire.lower()).bits
        assert seen[0] % 2**bits == name % 2**bits

    run(test())


def test_a_text_control_has_the_text() -> None:
    seen: list[object] = []

    def note(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        seen.extend(inputs["CORRID"].ravel().tolist())
        return {"y": inputs["x"]}

    async def test() -> None:
        controls = (ControlSpec("CORRID", tensor("CORRID", "BYTES")),)
        with loaded(model_spec(sequences(controls=controls)), note) as model:
            for name in ("häus", "x" * 128):
                caller = Caller(name, 1.0, True, True)
                submit(model, caller)
                await caller.answer()
        assert seen == ["häus".encode(), b"x" * 128]

    run(test())


@strategies
@pytest.mark.parametrize(
    ("caller", "text"),
    [
        (
            lambda: Caller(8, 1.0),
            "inference request for sequence 8 to model 'm' must specify the START flag on the first",
        ),
        (
            lambda: Caller(0, 1.0, True),
            "inference request to model 'm' must specify a non-zero or non-empty correlation ID",
        ),
        (
            lambda: Caller("", 1.0, True),
            "inference request to model 'm' must specify a non-zero or non-empty correlation",
        ),
        (
            lambda: Caller("8", 1.0, True),
            "sequence batching control 'CORRID' data-type is 'BYTES', but model 'm' expects 'UINT64'",
        ),
        (
            lambda: Caller(8, 1.0, True, rows=2),
            "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher",
        ),
    ],
    ids=["no start", "0", "empty", "a text", "two rows"],
)
def test_what_is_no_step_of_a_sequence_is_refused(oldest: bool, caller: object, text: str) -> None:
    async def test() -> None:
        with loaded(model_spec(sequences(oldest=oldest)), Totals()) as model:
            with pytest.raises(InvalidArgumentError, match=text) as refused:
                model.submit(caller())  # type: ignore[operator]
            assert ("[request id" in str(refused.value)) == ("data-type" in text), "as in the reference"
            assert (model.in_flight, model.budget.requests, model.statistics.pending) == (0, 0, 0)
            assert standing(model) == 0

    run(test())


@strategies
def test_a_failed_batch_is_not_run_again_in_parts(oldest: bool) -> None:
    calls: list[int] = []

    def fail(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        calls.append(len(inputs["x"]))
        if len(calls) == 1:
            raise ValueError("no")
        return {"y": inputs["x"]}

    async def test() -> None:
        with loaded(model_spec(sequences(oldest=oldest)), fail) as model:
            callers = [Caller(name, 1.0, True) for name in (1, 2, 3)]
            submit(model, *callers)
            for caller in callers:
                with pytest.raises(BackendError, match="no"):
                    await caller.answer()
            assert calls == [3]
            # An error is no end of a sequence.
            again = Caller(2, 4.0, end=True)
            submit(model, again)
            assert await again.answer() == 4.0
            assert (model.in_flight, standing(model)) == (0, 2)

    run(test())


@strategies
def test_an_idle_sequence_ends_and_its_slot_goes_to_the_next(oldest: bool) -> None:
    async def test() -> None:
        section = sequences(oldest=oldest, slots=1, idle_ms=30)
        with loaded(model_spec(section, 1), Totals()) as model:
            first, second = Caller(1, 1.0, True), Caller(2, 2.0, True)
            submit(model, first, second)
            assert await first.answer() == 1.0
            assert await second.answer() == 2.0
            with pytest.raises(InvalidArgumentError, match="START"):
                model.submit(Caller(1, 1.0))
            await until(lambda: standing(model) == 0)

    run(test())


@strategies
def test_who_waits_for_a_slot_for_too_long_is_told_so(oldest: bool) -> None:
    async def test() -> None:
        section = sequences(oldest=oldest, slots=1)
        with loaded(model_spec(section, 1), Totals()) as model:
            first = Caller(1, 1.0, True)
            late = [Caller(2, 2.0, True, timeout_us=20_000), Caller(2, 2.0)]
            submit(model, first, *late)
            assert await first.answer() == 1.0
            for caller in late:
                with pytest.raises(RequestTimeoutError, match="timeout of the corresponding sequence has been expired"):
                    await caller.answer()
            assert (model.in_flight, model.statistics.pending, standing(model)) == (0, 0, 1)

    run(test())


class Leaving(Caller):
    """Gives up other requests once it has its answer, as a connection that ends with it does."""

    __slots__ = ("leave",)

    def respond(self, outputs: object, error: NaiadError | None) -> None:
        super().respond(outputs, error)
        self.leave()


@strategies
def test_one_who_leaves_at_the_first_of_several_refusals_gets_each_of_them_once(oldest: bool) -> None:
    async def test() -> None:
        gate = Gate(Totals())
        with loaded(model_spec(sequences(oldest=oldest, slots=1, iterative=True), 1), gate) as model:
            running = Caller(1, 1.0)
            submit(model, running)
            await until(lambda: gate.begun == 1)
            late = [Leaving(2, 2.0, timeout_us=20_000), Leaving(2, 3.0, timeout_us=20_000)]
            for one, other in zip(late, reversed(late), strict=True):
                one.leave = lambda other=other: model.cancel(other)
            submit(model, *late)
            for one in late:
                with pytest.raises(RequestTimeoutError):
                    await one.answer()
            gate.open.release()
            assert await running.answer() == 1.0
            assert (model.in_flight, model.statistics.pending, standing(model)) == (0, 0, 0)

    run(test())


@strategies
def test_a_caller_who_leaves_takes_what_waits_of_its_sequence_along(oldest: bool) -> None:
    async def test() -> None:
        gate = Gate(Totals())
        with loaded(model_spec(sequences(oldest=oldest, slots=1), 1), gate) as model:
            running = Caller(1, 1.0, True)
            submit(model, running)
            await until(lambda: gate.begun == 1)
            waiting, backlog = [Caller(1, 2.0), Caller(1, 3.0)], Caller(2, 5.0, True)
            submit(model, *waiting, backlog)
            model.cancel(waiting[1])
            model.cancel(waiting[1])
            for caller in waiting:
                with pytest.raises(CancelledError):
                    await caller.answer()
            for _ in range(2):
                gate.open.release()
            assert await running.answer() == 1.0
            assert await backlog.answer() == 5.0
            model.cancel(running)
            assert (model.in_flight, standing(model)) == (0, 1)
            with pytest.raises(InvalidArgumentError, match="START"):
                model.submit(Caller(1, 1.0))

    run(test())


@strategies
def test_a_second_start_begins_anew_in_the_same_slot(oldest: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        with loaded(model_spec(sequences(oldest=oldest)), Totals()) as model:
            callers = [Caller(1, 1.0, True), Caller(1, 2.0), Caller(1, 30.0, True), Caller(1, 4.0, end=True)]
            submit(model, *callers)
            assert [await caller.answer() for caller in callers] == [1.0, 3.0, 30.0, 34.0]
            assert "sequence 1 for model 'm' has a conflict" in caplog.text
            assert standing(model) == 0

    run(test())


def test_a_model_is_busy_while_a_sequence_is_under_way() -> None:
    async def test() -> None:
        with loaded(model_spec(sequences()), Totals()) as model:
            assert not model.is_busy
            for start, end in ((True, False), (False, True)):
                caller = Caller(1, 1.0, start, end)
                submit(model, caller)
                await caller.answer()
                assert model.is_busy != end
                assert model.in_flight == 0

    run(test())


def test_sequences_stay_with_their_instance() -> None:
    async def test() -> None:
        found: dict[int, Totals] = {}

        def make(index: int) -> Totals:
            return found.setdefault(index, Totals())

        with loaded(model_spec(sequences(slots=2), 2, count=3), FunctionBackend(make)) as model:
            callers = [Caller(name, 1.0, value == 0, value == 9) for value in range(10) for name in range(1, 7)]
            submit(model, *callers)
            assert [await caller.answer() for caller in callers] == [v + 1.0 for v in range(10) for _ in range(6)]
            assert sorted(len(totals.totals) for totals in found.values()) == [2, 2, 2]
            assert standing(model) == 0

    run(test())


# Implicit state


def state(wire: str = "FP32", dims: Sequence[int] = (1,), **more: object) -> StateSpec:
    return StateSpec(
        tensor("in", wire, dims),
        tensor("out", wire, dims),
        tuple(max(1, d) for d in dims),
        **more,  # type: ignore[arg-type]
    )


def add(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
    total = inputs["in"] + inputs["x"]
    return {"y": total, "out": total}


@strategies
def test_states_come_back_with_the_next_request_and_begin_anew_with_start(oldest: bool) -> None:
    async def test() -> None:
        section = sequences(oldest=oldest, states=(state(),))
        with loaded(model_spec(section), add) as model:
            callers = [
                Caller(name, float(name), step in (0, 2), step == 3) for step in range(4) for name in (1, 2, 3, 4, 5)
            ]
            submit(model, *callers)
            found = [await caller.answer() for caller in callers]
            assert found == [name * times for times in (1, 2, 1, 2) for name in (1, 2, 3, 4, 5)]
            assert all(set(caller.answers[0][0]) == {"y"} for caller in callers)
            assert standing(model) == 0

    run(test())


def test_the_first_state_may_be_given() -> None:
    async def test() -> None:
        section = sequences(states=(state(initial=np.float32([100]).tobytes()),))
        with loaded(model_spec(section), add) as model:
            callers = [Caller(1, 1.0, True), Caller(1, 1.0), Caller(1, 7.0, True)]
            submit(model, *callers)
            assert [await caller.answer() for caller in callers] == [101.0, 102.0, 107.0]

    run(test())


def grow(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
    """Appends the input to the state, whose length is the answer."""
    longer = np.concatenate([inputs["in"], inputs["x"]], axis=1)
    return {"y": np.full_like(inputs["x"], longer.shape[1]), "out": longer}


@strategies
def test_states_of_different_lengths_are_not_put_together(oldest: bool) -> None:
    async def test() -> None:
        section = sequences(oldest=oldest, states=(state(dims=(-1,)),))
        with loaded(model_spec(section), grow) as model:
            head = [Caller(1, 0.0, True), Caller(1, 0.0)]
            submit(model, *head)
            assert [await caller.answer() for caller in head] == [2.0, 3.0]
            callers = [Caller(2, 0.0, True), Caller(1, 0.0), Caller(2, 0.0), Caller(1, 0.0)]
            submit(model, *callers)
            assert [await caller.answer() for caller in callers] == [2.0, 4.0, 3.0, 5.0]

    run(test())


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (np.zeros((1, 2), np.float32), r"returned state 'out' as FP32 with shape \[1, 2\], but .* FP32 with \[1, 1\]"),
        (np.zeros((1, 1), np.int32), "returned output 'out' as INT32"),
    ],
    ids=["shape", "type"],
)
def test_a_wrong_state_fails_its_request_and_is_not_kept(bad: np.ndarray, text: str) -> None:
    answers = iter([None, bad, None])

    def sometimes(inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        found = next(answers)
        return add(inputs, outputs) if found is None else {**add(inputs, outputs), "out": found}

    async def test() -> None:
        with loaded(model_spec(sequences(states=(state(),))), sometimes) as model:
            callers = [Caller(1, 1.0, True), Caller(1, 1.0), Caller(1, 1.0)]
            submit(model, *callers)
            assert await callers[0].answer() == 1.0
            with pytest.raises(BackendError, match=text):
                await callers[1].answer()
            assert await callers[2].answer() == 2.0
            statistics = model.statistics
            assert (statistics.success.count, statistics.failures["BACKEND"], statistics.execution_count) == (2, 1, 3)
            assert (model.in_flight, model.budget.requests, model.budget.bytes) == (0, 0, 0)

    run(test())


# Others in its place


def pair() -> tuple[SequenceModel, SequenceModel]:
    made = []
    for version in (1, 2):
        backend = FunctionBackend(lambda index: Totals())
        made.append(SequenceModel(model_spec(sequences(idle_ms=60)), version, backend, asyncio.get_running_loop()))
        made[-1].start()
    return made[0], made[1]


def close(*models: SequenceModel) -> None:
    for model in models:
        assert model.close(10)
        model.detach()


def test_sequences_go_on_where_they_began() -> None:
    async def test() -> None:
        old, new = pair()
        first = Caller(1, 1.0, True)
        submit(old, first)
        await first.answer()
        new.follow(old)
        old.stop_accepting()
        assert not old.is_drained
        drained = asyncio.Event()
        old.when_drained(drained.set)
        second, other, third = Caller(1, 2.0), Caller(2, 7.0, True), Caller(1, 3.0, end=True)
        submit(new, second, other, third)
        assert [await caller.answer() for caller in (second, other, third)] == [3.0, 7.0, 6.0]
        assert second.recipient is third.recipient is old
        assert other.recipient is None
        await asyncio.wait_for(drained.wait(), 10)
        with pytest.raises(ServerStoppingError):
            old.submit(Caller(3, 1.0, True))
        close(old)
        assert not any(one is old for one in kept(new))
        with pytest.raises(InvalidArgumentError, match="START"):
            new.submit(Caller(1, 1.0))
        close(new)

    run(test())


def test_a_version_waits_for_its_sequences_no_longer_than_they_may_be_idle() -> None:
    async def test() -> None:
        old, new = pair()
        first = Caller(1, 1.0, True)
        submit(old, first)
        await first.answer()
        new.follow(old)
        old.stop_accepting()
        drained = asyncio.Event()
        old.when_drained(drained.set)
        await asyncio.wait_for(drained.wait(), 10)
        close(old, new)

    run(test())


def test_without_another_one_nobody_waits_for_idle_sequences() -> None:
    async def test() -> None:
        old, new = pair()
        first = Caller(1, 1.0, True)
        submit(old, first)
        await first.answer()
        old.stop_accepting()
        assert old.is_drained
        close(old, new)

    run(test())


def test_other_tensors_do_not_go_on_with_a_sequence() -> None:
    async def test() -> None:
        old, new = pair()
        first = Caller(1, 1.0, True)
        submit(old, first)
        await first.answer()
        new.spec = replace(new.spec, outputs={})
        new.follow(old)
        assert old.is_drained
        error: NaiadError | None = None
        try:
            new.submit(Caller(1, 1.0))
        except NaiadError as found:
            error = found
        assert isinstance(error, InvalidArgumentError)
        close(old, new)

    run(test())
