"""Streams of decoupled models: any number of responses to a request, their end, errors, and callers who are slow."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontends.grpc.v2.test_stream import Caller, failed
from naiad.errors import BackendError, CancelledError, ServerStoppingError
from naiad.frontends.grpc.v2 import response_backlog as backlog
from naiad.frontends.grpc.v2.stream import MAX_DECOUPLED, StreamService
from naiad.request import Outputs
from support.grpc_infer import Request, Response, Services, Streamed, floats, play
from support.played_model import PlayedModel

FINAL = "triton_final_response"


def asking(*values: float, empty_final: bool = True, **more: Any) -> Any:
    """A request whose caller wants to be told the end."""
    message = floats(*values, **more)
    message.parameters["triton_enable_empty_final_response"].bool_param = empty_final
    return message


def value(*values: float) -> dict[str, np.ndarray]:
    return {"OUTPUT0": np.array([values], np.float32)}


def response(*values: float, final: bool = False, id: str = "") -> Any:
    """What a caller gets for ``value(*values)``."""
    answer = Response(model_name="floats", model_version="1", id=id)
    answer.outputs.add(name="OUTPUT0", datatype="FP32", shape=[1, len(values)])
    answer.raw_output_contents.append(np.array(values, np.float32).tobytes())
    answer.parameters[FINAL].bool_param = final
    return Streamed(infer_response=answer)


def end(id: str = "") -> Any:
    """The end of the responses when none comes with it: no version, no outputs."""
    answer = Streamed()
    answer.infer_response.model_name = "floats"
    answer.infer_response.id = id
    answer.infer_response.parameters[FINAL].bool_param = True
    return answer


def error(text: str, final: bool, id: str = "") -> Any:
    answer = failed(text, model_name="floats", id=id)
    answer.infer_response.parameters[FINAL].bool_param = final
    return answer


def played(tmp_path: Path, scenario: Callable[[Services, PlayedModel], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in which ``floats`` is decoupled and answers as the scenario says."""

    async def test(services: Services) -> None:
        await scenario(services, PlayedModel(services.house, "floats", decoupled=True))

    play(tmp_path, test)


def test_three_responses_and_an_end(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(asking(0, id="r3"))
        for n in range(3):
            model.last.respond_part(value(n), None, False)
            assert caller.answers()[-1] == response(n, id="r3")
        model.last.respond_part(None, None, True)
        assert await caller.rest() == [*(response(n, id="r3") for n in range(3)), end(id="r3")]

    played(tmp_path, scenario)


@pytest.mark.parametrize("empty_final", [None, False])
def test_the_bare_end_is_sent_only_when_it_is_asked_for(tmp_path: Path, empty_final: bool | None) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0) if empty_final is None else asking(0, empty_final=empty_final))
        model.last.respond_part(value(1), None, False)
        caller.receiver.end()
        assert not caller.call.ended
        model.last.respond_part(None, None, True)
        assert caller.call.status == (0, "")
        assert caller.answers() == [response(1)]

    played(tmp_path, scenario)


def test_the_end_can_come_with_the_last_response(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(asking(0, id="r4"))
        model.last.respond_part(value(0), None, True)
        # What a model says after its end reaches nobody.
        model.last.respond_part(value(1), None, False)
        model.last.respond_part(None, None, True)
        assert await caller.rest() == [response(0, final=True, id="r4")]

    played(tmp_path, scenario)


def test_no_response_at_all(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0, id="a"), asking(0, id="b"))
        for request in model.requests:
            request.respond_part(None, None, True)
        assert await caller.rest() == [end("b")]

    played(tmp_path, scenario)


def test_a_response_without_outputs_is_a_response(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0))
        model.last.respond_part({}, None, True)
        (answer,) = await caller.rest()
        assert answer.infer_response.model_version == "1"
        assert len(answer.infer_response.outputs) == 0

    played(tmp_path, scenario)


def test_an_error_in_the_middle_ends_nothing(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(asking(0, id="g"), floats(0, id="e"))
        first, second = model.requests
        first.respond_part(value(1), None, False)
        first.respond_part(None, BackendError("mid generation failure"), False)
        first.respond_part(value(2), None, False)
        first.respond_part(None, None, True)
        second.respond_part(None, BackendError("boom"), True)
        assert await caller.rest() == [
            response(1, id="g"),
            error("mid generation failure", False, id="g"),
            response(2, id="g"),
            end("g"),
            error("boom", True, id="e"),
        ]

    played(tmp_path, scenario)


def test_an_error_before_the_model_ran_ends_the_request(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0, id="a"))
        model.last.respond({}, CancelledError("gone"))

        def refuse(request: Any) -> None:
            raise ServerStoppingError("stops")

        model.model.submit = refuse
        caller.send(floats(0, id="b"))
        assert await caller.rest() == [error("gone", True, id="a"), error("stops", True, id="b")]

    played(tmp_path, scenario)


def test_decoupled_requests_interleave_and_wait_for_nobody(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0, model="slow", id="slow"), asking(0, id="a"), asking(0, id="b"))
        a, b = model.requests
        a.respond_part(value(1), None, False)
        b.respond_part(value(2), None, False)
        a.respond_part(value(3), None, False)
        b.respond_part(None, None, True)
        a.respond_part(None, None, True)
        assert caller.ids() == ["a", "b", "a", "b", "a"]
        await caller.rest()
        assert caller.ids()[-1] == "slow"

    played(tmp_path, scenario)


def test_the_call_ends_when_every_request_has(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        for finish, status in (("end", (0, "")), ("stop", (14, None))):
            caller = Caller(services)
            caller.send(floats(0), floats(0))
            getattr(caller.receiver, finish)()
            for request in model.requests[-2:]:
                assert not caller.call.ended
                request.respond_part(value(1), None, True)
            assert caller.call.code == status[0]

    played(tmp_path, scenario)


def test_a_caller_who_gives_up_is_known_to_the_model(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0), floats(1), floats(2))
        done, *running = model.requests
        done.respond_part(value(0), None, True)
        caller.call.give_up()
        assert set(model.cancelled) == set(running)
        for request in running:
            request.respond_part(value(1), None, False)
            request.respond_part(None, None, True)
        assert len(caller.call.messages) == 1

    played(tmp_path, scenario)


def test_an_error_ends_the_call_for_callers_who_want_it_to(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services, triton_grpc_error="true")
        caller.send(floats(0), floats(1))
        first, second = model.requests
        first.respond_part(value(1), None, False)
        first.respond_part(None, BackendError("boom"), False)
        assert caller.call.status == (13, "boom")
        assert set(model.cancelled) == {first, second}
        assert caller.answers() == [response(1)]

    played(tmp_path, scenario)


def test_parameters_of_responses_stand_beside_the_final_one(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0))
        said = {"s": "text", "i": -7, "b": True, FINAL: True}
        model.last.respond_part(Outputs(value(1), said), None, False)
        model.last.respond_part(Outputs(value(2), {"big": 2**65}), None, False)
        model.last.respond_part(Outputs({"OUTPUT0": np.ones((1, 1))}), None, True)
        answer, refused, wide = await caller.rest()
        wanted = response(1)
        wanted.infer_response.parameters["s"].string_param = "text"
        wanted.infer_response.parameters["i"].int64_param = -7
        wanted.infer_response.parameters["b"].bool_param = True
        assert answer == wanted
        assert "the parameter 'big'" in refused.error_message
        assert not refused.infer_response.parameters[FINAL].bool_param
        assert wide.infer_response.outputs[0].datatype == "FP64"
        assert wide.infer_response.raw_output_contents == [np.ones(1).tobytes()]

    played(tmp_path, scenario)


# Callers who are slow


def test_the_requests_of_a_slow_caller_are_held(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(asking(0, id="much"), asking(0, id="little"), asking(0, id="done"))
        much, little, done = model.requests
        for n in range(5):
            much.respond_part(value(n), None, False)
        assert model.held == {}
        caller.call.congested = True
        done.respond_part(value(0), None, True)
        assert model.held == {}, "a request that is over"
        much.respond_part(value(5), None, False)
        assert list(model.held) == [much]
        assert 400 < model.held[much] <= 500
        little.respond_part(value(6), None, False)
        # All of a caller's requests together have this long.
        assert model.held[little] <= model.held[much]
        # What was on its way is kept, and the end is the end.
        much.respond_part(value(7), None, True)
        caller.call.drain()
        # The one that is over is not let go on.
        assert list(model.held) == [much]
        little.respond_part(None, None, True)
        answers = await caller.rest()
        assert len(answers) == 5 + 4 + 1
        assert model.cancelled == []

    played(tmp_path, scenario)


def test_so_many_responses_may_wait_as_the_option_says(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        services.streams = StreamService(services.house.engine, max_waiting=3)
        caller = Caller(services)
        caller.send(floats(0))
        for n in range(3):
            assert model.held == {}
            model.last.respond_part(value(n), None, False)
        assert list(model.held) == [model.last]
        caller.call.drain()
        assert model.held == {}
        model.last.respond_part(None, None, True)
        assert len(await caller.rest()) == 3

    played(tmp_path, scenario)


def test_a_held_request_that_its_caller_gives_up_is_cancelled(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        caller.send(floats(0))
        caller.call.congested = True
        model.last.respond_part(value(0), None, False)
        caller.call.give_up()
        assert model.cancelled == [model.last]
        caller.call.drain()
        assert list(model.held) == [model.last], "let go on after it was given up"

    played(tmp_path, scenario)


def test_a_caller_who_takes_its_responses_in_the_end_gets_all(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        services.streams = StreamService(services.house.engine, max_waiting=3)
        caller = Caller(services)
        caller.send(floats(0))
        for _ in range(4):
            caller.call.congested = True
            for n in range(4):
                model.last.respond_part(value(n), None, False)
            caller.call.drain()
        model.last.respond_part(None, None, True)
        assert len(await caller.rest()) == 16

    played(tmp_path, scenario)


def test_what_waits_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_WAITING_BYTES", 1000)

    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services, triton_grpc_error="true")
        caller.send(floats(0), floats(1))
        caller.call.congested = True
        first, second = model.requests
        first.respond_part(value(*range(1000)), None, False)
        second.respond_part(value(1), None, False)
        assert caller.call.code == 8
        assert set(model.cancelled) == {first, second}

    played(tmp_path, scenario)


def test_a_caller_with_very_many_running_requests_is_paused(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        message = floats(0).SerializeToString()
        for _ in range(MAX_DECOUPLED):
            assert not caller.call.paused
            caller.send(message)
        assert caller.call.paused
        for request in model.requests[: MAX_DECOUPLED // 2]:
            assert caller.call.paused
            request.respond_part(None, None, True)
        assert not caller.call.paused

    played(tmp_path, scenario)


# What a request says


def test_what_a_request_says_reaches_the_model(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        message = asking(1)
        message.parameters["sequence_id"].string_param = "abc"
        message.parameters["sequence_start"].bool_param = True
        message.parameters["own"].int64_param = -5
        message.parameters["timeout"].int64_param = 1000
        caller.send(message)
        del message.parameters["sequence_start"]
        message.parameters["sequence_id"].int64_param = -1
        message.parameters["sequence_end"].bool_param = True
        caller.send(message, floats(1))
        first, second, plain = (request.options for request in model.requests)
        assert (first.flags, first.correlation_id, first.timeout_us) == (1, "abc", 1000)
        assert first.parameters == {"own": -5}
        assert (second.flags, second.correlation_id) == (2, 2**64 - 1)
        assert (plain.flags, plain.correlation_id, plain.parameters) == (0, 0, {})
        for request in model.requests:
            request.respond_part(None, None, True)
        assert len(await caller.rest()) == 2

    played(tmp_path, scenario)


def test_requests_that_differ_in_their_sequence_alone_have_plans_of_their_own(tmp_path: Path) -> None:
    async def scenario(services: Services, model: PlayedModel) -> None:
        caller = Caller(services)
        for sequence in (1, 2, 1):
            message = Request(model_name="floats")
            message.inputs.add(name="INPUT0", datatype="FP32", shape=[1, 1]).contents.fp32_contents.append(sequence)
            message.parameters["sequence_id"].int64_param = sequence
            caller.send(message)
        first, second, third = (request.options for request in model.requests)
        assert [t.correlation_id for t in (first, second)] == [1, 2]
        assert third is first
        caller.call.give_up()

    played(tmp_path, scenario)
