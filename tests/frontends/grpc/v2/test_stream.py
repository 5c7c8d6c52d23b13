"""``ModelStreamInfer``: order, errors, the end, giving up and back-pressure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.errors import InternalError
from naiad.frontends.grpc.v2.stream import MAX_UNANSWERED
from support.event_loops import until
from support.grpc_calls import RecordedCall
from support.grpc_infer import Request, Services, Streamed, floats, pair, play, request, tensors

INTERNAL, INVALID, NOT_FOUND, UNAVAILABLE = 13, 3, 5, 14


class Caller:
    """One call; ``call`` keeps what comes back."""

    def __init__(self, services: Services, **metadata: str) -> None:
        self.call = RecordedCall(metadata)
        self.receiver: Any = services.streams.open(self.call)
        self.call.owner = self.receiver

    def send(self, *messages: Any) -> None:
        """Send requests, messages or bytes."""
        for message in messages:
            self.receiver.receive(message.SerializeToString() if isinstance(message, Request) else message)

    async def rest(self) -> list[Any]:
        """Send no more; all the answers, after which the call must end well."""
        self.receiver.end()
        assert await self.call.finished() == (0, "")
        return self.answers()

    def answers(self) -> list[Any]:
        """What came back so far."""
        return [Streamed.FromString(m) for m in self.call.messages]

    def ids(self) -> list[str]:
        """The ids of what came back so far."""
        return [a.infer_response.id for a in self.answers()]


def failed(text: str, **described: Any) -> Any:
    """What a request that failed is answered with."""
    answer = Streamed(error_message=text)
    answer.infer_response.SetInParent()
    for name, value in described.items():
        setattr(answer.infer_response, name, value)
    return answer


def look_up(index: int, **more: Any) -> Any:
    """A request whose run fails for an index outside of 0 to 3."""
    message = Request(model_name="look_up", raw_input_contents=[np.int64(index).tobytes()], **more)
    message.inputs.add(name="index", datatype="INT64", shape=[1, 1])
    return message


def test_answers_are_those_of_model_infer_and_say_that_they_are_the_last(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        messages = [pair(id="a"), floats(1, 2), pair(id="b"), floats(3, id="ü")]
        wanted = [await services.answer(m) for m in messages]
        for answer in wanted:
            answer.parameters["triton_final_response"].bool_param = True
        caller = Caller(services)
        caller.send(*messages)
        assert await caller.rest() == [Streamed(infer_response=answer) for answer in wanted]

    play(tmp_path, scenario)


def test_a_call_without_requests_ends_well(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        assert await Caller(services).rest() == []

    play(tmp_path, scenario)


def test_the_call_stays_open_between_requests(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        for n in range(5):
            caller.send(floats(n, id=str(n)))
            await caller.call.wait(lambda n=n: len(caller.call.messages) == n + 1)
            assert not caller.call.ended
        assert len(await caller.rest()) == 5

    play(tmp_path, scenario)


def test_answers_leave_in_the_order_of_the_requests(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        models = ["slow", "floats", "nope", "slow", "floats"]
        caller.send(*[floats(1, model=model, id=f"{i} {model}") for i, model in enumerate(models)])
        assert caller.call.messages == []
        await caller.rest()
        assert caller.ids() == [f"{i} {model}" for i, model in enumerate(models)]

    play(tmp_path, scenario)


def test_the_end_of_the_requests_does_not_wait_for_anything_else(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.send(floats(1, model="slow"))
        caller.receiver.end()
        assert not caller.call.ended
        assert await caller.call.finished() == (0, "")
        assert len(caller.call.messages) == 1

    play(tmp_path, scenario)


def test_an_error_is_an_answer_and_the_call_goes_on(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        unknown_output = pair(id="uo")
        unknown_output.outputs.add(name="NOPE")
        wrong_type = pair(id="ft")
        wrong_type.parameters["triton_enable_empty_final_response"].int64_param = 1
        caller.send(
            floats(1, model="nope", id="bad"), unknown_output, wrong_type, floats(1, model="nope"), pair(id="good")
        )
        answers = await caller.rest()
        assert answers[:4] == [
            failed("Request for unknown model: 'nope' is not found", id="bad"),
            failed("unexpected inference output 'NOPE' for model 'pair'", id="uo"),
            failed(
                "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param.", id="ft"
            ),
            failed("Request for unknown model: 'nope' is not found"),
        ]
        assert answers[4].infer_response.id == "good"
        assert tensors(answers[4].infer_response).keys() == {"OUTPUT0", "OUTPUT1"}

    play(tmp_path, scenario)


def test_the_empty_final_response_may_be_asked_for(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        message = pair(id="s")
        message.parameters["triton_enable_empty_final_response"].bool_param = True
        caller = Caller(services)
        caller.send(message)
        (answer,) = await caller.rest()
        assert answer.infer_response.parameters["triton_final_response"].bool_param
        assert len(answer.infer_response.outputs) == 2

    play(tmp_path, scenario)


def test_an_error_of_the_model_names_it_and_is_the_last_answer(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.send(look_up(9, id="e"), look_up(2, id="f"))
        error, answer = await caller.rest()
        assert error.error_message
        wanted = failed(error.error_message, id="e", model_name="look_up")
        wanted.infer_response.parameters["triton_final_response"].bool_param = True
        assert error == wanted
        assert answer.error_message == ""
        assert tensors(answer.infer_response)["value"].tolist() == [[12.0]]

    play(tmp_path, scenario)


def test_with_grpc_errors_the_first_error_ends_the_call(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        for wrong, code in ((floats(1, model="nope"), NOT_FOUND), (look_up(9), INTERNAL)):
            caller = Caller(services, triton_grpc_error="true")
            caller.send(floats(1, model="slow", id="before"), wrong, floats(1, model="slow", id="after"))
            found, text = await caller.call.finished()
            assert found == code
            assert text
            assert caller.ids() == ["before"]
            caller.send(floats(1))
            caller.receiver.end()

    play(tmp_path, scenario)


def test_with_grpc_errors_other_words_than_true_change_nothing(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services, triton_grpc_error="false")
        caller.send(floats(1, model="nope"))
        assert len(await caller.rest()) == 1

    play(tmp_path, scenario)


def test_what_is_no_message_ends_the_call_after_the_answers_before_it(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.send(floats(1, model="slow", id="before"), b"\xff\xff", floats(1, id="after"))
        assert await caller.call.finished() == (INTERNAL, "Unable to parse request")
        assert caller.ids() == ["before"]

    play(tmp_path, scenario)


def test_a_caller_who_gives_up_takes_all_its_requests_along(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        model = services.house.engine.find("slow", "")
        caller, other = Caller(services), Caller(services)
        caller.send(*[floats(n, model="slow") for n in range(20)])
        other.send(floats(7, model="slow", id="other"))
        assert model.in_flight == 21
        caller.call.give_up()
        # One of them runs, and cannot be stopped.
        assert model.in_flight == 2
        await other.rest()
        assert other.ids() == ["other"]
        assert caller.call.messages == []
        assert model.in_flight == 0

    play(tmp_path, scenario)


def test_a_call_that_ends_with_an_error_takes_its_requests_along(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        model = services.house.engine.find("slow", "")
        caller = Caller(services, triton_grpc_error="true")
        caller.send(floats(1, model="nope"))
        assert caller.call.code == NOT_FOUND
        caller = Caller(services, triton_grpc_error="true")
        caller.send(look_up(9), *[floats(n, model="slow") for n in range(5)])
        assert (await caller.call.finished())[0] == INTERNAL
        assert model.in_flight <= 1

    play(tmp_path, scenario)


def test_a_caller_with_many_unanswered_requests_is_paused(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        for n in range(MAX_UNANSWERED):
            assert not caller.call.paused
            caller.send(floats(n, model="slow" if n == 0 else "floats", id=str(n)))
        assert caller.call.paused
        # One that was already under way is served too.
        caller.send(floats(0, id="late"))
        await caller.call.wait(lambda: len(caller.call.messages) == MAX_UNANSWERED + 1)
        assert not caller.call.paused
        assert caller.ids() == [*map(str, range(MAX_UNANSWERED)), "late"]
        assert not caller.call.ended
        await caller.rest()

    play(tmp_path, scenario)


def test_a_caller_who_does_not_take_its_answers_is_paused(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.call.congested = True
        caller.send(floats(1))
        assert caller.call.paused
        caller.call.drain()
        assert not caller.call.paused
        caller.send(floats(2))
        assert not caller.call.paused
        assert len(await caller.rest()) == 2

    play(tmp_path, scenario)


def test_a_caller_is_read_again_only_when_it_takes_its_answers(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        caller.send(*[floats(n, model="slow" if n == 0 else "floats") for n in range(MAX_UNANSWERED)])
        caller.call.congested = True
        await caller.call.wait(lambda: len(caller.call.messages) == MAX_UNANSWERED)
        assert caller.call.paused
        caller.call.drain()
        assert not caller.call.paused

    play(tmp_path, scenario)


def test_a_model_that_stops_is_an_error(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        services.house.engine.find("pair", "").stop_accepting()
        caller = Caller(services)
        caller.send(pair(id="1"), floats(1, id="2"))
        error, answer = await caller.rest()
        assert error.error_message.startswith("Server is stopping")
        assert (error.infer_response.id, answer.infer_response.id) == ("1", "2")

    play(tmp_path, scenario)


def test_an_answer_that_cannot_be_made_leaves_room_for_an_error(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        caller = Caller(services)
        slow = services.house.engine.find("slow", "")
        submit, submitted = slow.submit, []
        slow.submit = lambda request: (submitted.append(request), submit(request))  # type: ignore[method-assign]
        caller.send(floats(1, model="slow", id="1"), floats(2, id="2"))
        (request,) = submitted
        with pytest.raises(AttributeError):
            request.respond({"OUTPUT0": [1.0]}, None)
        assert caller.call.messages == []
        request.respond({}, InternalError("see the log"))
        assert [a.error_message for a in caller.answers()] == ["see the log", ""]
        # What its model says later comes too late.
        await until(lambda: slow.in_flight == 0)
        assert len(await caller.rest()) == 2

    play(tmp_path, scenario)


def test_large_tensors_travel(tmp_path: Path) -> None:
    async def scenario(services: Services) -> None:
        array = np.arange(1 << 20, dtype=np.float32).reshape(4, -1)
        caller = Caller(services)
        caller.send(request("floats", array), request("floats", array))
        for answer in await caller.rest():
            np.testing.assert_array_equal(tensors(answer.infer_response)["OUTPUT0"], array)

    play(tmp_path, scenario)
