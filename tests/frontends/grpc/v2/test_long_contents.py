"""Requests that a thread reads before they reach their model: their place in a stream, and callers who give up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from frontends.grpc.v2.test_stream import Caller
from naiad.frontends.grpc.v2.stream import MAX_UNANSWERED
from naiad.tensor.packed_bytes import AT_ONCE_STRINGS
from naiad.wire.v2.header import MAX_DESCRIPTION_BYTES
from naiad.wire.v2.long_contents import LONG_STRINGS_BYTES
from support.grpc_infer import Request, Services, floats, play, request, tensors

INVALID = 3
MANY = 2 * max(AT_ONCE_STRINGS, LONG_STRINGS_BYTES)


def mixed(count: int, typed: bool, promised: int = 0, **more: Any) -> Any:
    """A request for ``mixed`` with so many strings."""
    texts = np.array([[b"%d" % n for n in range(count)]], np.object_)
    made = request("mixed", np.array([[1, 2]], np.int32), texts, np.array([[0.5]]), **more)
    if typed:
        del made.raw_input_contents[:]
        made.inputs[0].contents.int_contents.extend([1, 2])
        made.inputs[1].contents.bytes_contents.extend(texts[0].tolist())
        made.inputs[2].contents.fp64_contents.append(0.5)
    made.inputs[1].shape[1] = promised or count
    return made


def check(answer: Any, count: int) -> None:
    found = tensors(answer.infer_response)
    assert found["OUTPUT0"].tolist() == [[1, 2]] and found["OUTPUT2"].tolist() == [[0.5]]
    assert found["OUTPUT1"].tolist() == [[b"%d" % n for n in range(count)]]


def test_typed_and_raw_mean_the_same(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for count in (1, 1000, 3000, MANY):
            assert await services.answer(mixed(count, True)) == await services.answer(mixed(count, False))

    play(tmp_path, scenario)


def test_raw_tensors_may_lie_anywhere(tmp_path: Path) -> None:
    """Of a large message in which they are not the last fields, they are cut out in a thread."""

    async def scenario(services: Services) -> None:
        made = mixed(300_000, False, id="7")
        expected = await services.answer(made)
        tensors_alone, described = type(made)(raw_input_contents=made.raw_input_contents), type(made)()
        described.CopyFrom(made)
        described.ClearField("raw_input_contents")
        head, tail = tensors_alone.SerializeToString(), described.SerializeToString()
        assert len(head) > 1 << 20
        call = services.ask(head + tail)
        assert not call.ended
        assert await call.answer(type(expected)) == expected
        code, text = await services.error(head + tail[:-1])
        assert (code, text) == (13, "Unable to parse request")
        made.inputs[0].contents.int_contents.append(1)
        described.CopyFrom(made)
        described.ClearField("raw_input_contents")
        code, text = await services.error(head + described.SerializeToString())
        assert code == INVALID and "contents field must not be specified" in text

    play(tmp_path, scenario)


def test_descriptions_are_bounded(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        text = "x" * MAX_DESCRIPTION_BYTES
        for typed in (False, True):
            for made in (mixed(3, typed, id=text), mixed(3, typed), mixed(3000, typed)):
                if not made.id:
                    made.parameters["a"].string_param = text
                code, told = await services.error(made)
                assert code == INVALID and f"at most {MAX_DESCRIPTION_BYTES}" in told
            caller = Caller(services)
            caller.send(mixed(3, typed, id=text), floats(1, id="2"))
            first, second = await caller.rest()
            assert f"at most {MAX_DESCRIPTION_BYTES}" in first.error_message and not first.infer_response.id
            assert second.infer_response.id == "2"

    play(tmp_path, scenario)


def test_what_follows_a_long_message_keeps_its_order(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for typed in (False, True):
            caller = Caller(services)
            caller.send(floats(1, id="a"), mixed(MANY, typed, id="b"))
            # Further messages are not read while contents are: those that were under way wait.
            assert caller.call.paused is typed
            caller.send(floats(2, id="c"), mixed(MANY, typed, id="d"), mixed(5, typed, id="e"), b"nonsense")
            caller.receiver.end()
            code, _ = await caller.call.finished()
            assert code == 13
            assert caller.ids() == ["a", "b", "c", "d", "e"]
            for at, count in ((1, MANY), (3, MANY), (4, 5)):
                check(caller.answers()[at], count)

    play(tmp_path, scenario)


def test_one_that_is_wrong_is_answered_in_its_place(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.send(
            mixed(MANY, True, id="a"),
            mixed(MANY, True, MANY + 1, id="b"),
            mixed(MANY, False, MANY + 1, id="c"),
            floats(1),
        )
        answers = await caller.rest()
        wrong = f"expected {MANY + 1} string elements for inference input 'INPUT1' for model 'mixed', got {MANY}"
        assert [a.error_message for a in answers] == ["", f"[request id: b] {wrong}", f"[request id: c] {wrong}", ""]
        for typed in (False, True):
            code, text = await services.error(mixed(MANY, typed, MANY + 1))
            assert (code, text) == (INVALID, f"[request id: <id_unknown>] {wrong}")

    play(tmp_path, scenario)


def test_nothing_stays_of_callers_who_give_up(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        budget = services.house.engine.budget
        for typed in (False, True):
            call = services.ask(mixed(MANY, typed))
            assert budget.requests == 1
            call.give_up()
            caller = Caller(services)
            caller.send(mixed(MANY, typed), floats(1), mixed(MANY, typed))
            caller.call.give_up()
            # The thread does one after the other: with this all is done.
            await services.answer(mixed(MANY, typed))
            assert not call.messages and not caller.call.messages
            assert (budget.requests, budget.bytes) == (0, 0)

    play(tmp_path, scenario)


def test_a_caller_with_many_unanswered_texts_is_paused(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        for n in range(MAX_UNANSWERED):
            assert not caller.call.paused
            caller.send(floats(0, model="slow") if n == 0 else mixed(2, False))
        assert caller.call.paused
        assert len(await caller.rest()) == MAX_UNANSWERED

    play(tmp_path, scenario)


def test_a_long_message_that_is_none_ends_the_stream(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        whole: bytes = mixed(MANY, True).SerializeToString()
        for wrong in (whole[:-1], whole + b"\x0f"):
            caller = Caller(services)
            caller.send(floats(1), wrong, floats(2))
            assert (await caller.call.finished())[0] == 13
            assert len(caller.answers()) == 1
            assert (await services.error(wrong))[0] == 13
        assert Request.FromString(whole)

    play(tmp_path, scenario)
