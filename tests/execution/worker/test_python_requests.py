"""Every request that a Python model got is answered once, and by its own answer, whatever the model does with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic, thread_time
from typing import Any

import numpy as np
import pytest

from naiad.errors import BackendError, CancelledError, NotFoundError, UnavailableError
from naiad.execution.worker.bls import BlsCalls, CalledRequest
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.execution.worker.instance import ProcessInstance
from naiad.request import RequestOptions
from support import worker_models
from support.event_loops import run, until
from support.kept_objects import kept, kept_of
from support.noted_requests import submit
from support.worker_models import Caller, serving, write_model

BATCHING = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 2000000 }"
DECOUPLED = "model_transaction_policy { decoupled: true }"
TERMS = RequestOptions(("y",), 1, (("x", (1,)),))
ANSWER = """
def answer(request):
    x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
    return pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * x)])
"""
# What cannot be sent once; from then on it can.
NO_MEMORY = """
def execute(self, requests):
    if not hasattr(self, "failed"):
        self.failed = True
        module = sys.modules["naiad_worker.runtime.writer"]
        kept = module.{name}
        def fails(*_):
            module.{name} = kept
            raise MemoryError("there is none left")
        module.{name} = fails
    {rest}
"""


def play(tmp_path: Path, test: Any, methods: str, more: str = BATCHING) -> None:
    """Serve a model that knows ``answer``."""
    worker_models.play(tmp_path, test, methods, more, ANSWER)


def process_instance(model: Any) -> ProcessInstance:
    (instance,) = model.instances
    assert isinstance(instance, ProcessInstance)
    return instance


def is_idle(model: Any) -> bool:
    """Nothing is open, and nothing is kept of a request."""
    instance = process_instance(model)
    return model.in_flight == model.statistics.pending == 0 and instance.is_idle and not kept_of(instance, Caller)


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "different"])
@pytest.mark.parametrize(
    "change",
    [
        "requests.reverse()",
        "requests.sort(key=lambda r: -r.inputs()[0].as_numpy()[0, 0])",
        "import random; random.shuffle(requests)",
    ],
)
def test_a_sorted_list_gets_its_answers_in_that_order(tmp_path: Path, change: str, alike: bool) -> None:
    async def test(model: Any) -> None:
        for _ in range(3):
            options = [TERMS if alike else RequestOptions(("y",), 1, TERMS.shape_key) for _ in range(4)]
            callers = [Caller(n, options[n]) for n in range(4)]
            submit(model, *callers)
            for n, caller in enumerate(callers):
                assert (await caller.outputs())["y"].tolist() == [[2 * n]]
        assert is_idle(model)

    play(tmp_path, test, f"def execute(self, requests):\n    {change}\n    return [answer(r) for r in requests]\n")


def test_a_list_that_is_used_up(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(n, TERMS) for n in range(4)]
        submit(model, *callers)
        for n, caller in enumerate(callers):
            assert (await caller.outputs())["y"].tolist() == [[2 * n]]

    methods = """
    def execute(self, requests):
        answers = []
        while requests:
            answers.append(answer(requests.pop(0)))
        return answers
    """
    play(tmp_path, test, methods)


@pytest.mark.parametrize("failure", ["raise ValueError('too late')", "sys.exit(3)", "os._exit(3)"])
def test_what_was_sent_before_the_model_failed_is_the_answer(tmp_path: Path, failure: str) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(n, TERMS) for n in range(2)]
        submit(model, *callers)
        assert (await callers[0].outputs())["y"].tolist() == [[0]]
        assert isinstance(await callers[1].error(), (BackendError, UnavailableError))
        assert model.in_flight == model.statistics.pending == 0

    methods = f"""
    def execute(self, requests):
        import os, time
        requests[0].get_response_sender().send(answer(requests[0]))
        {failure}
    """
    play(tmp_path, test, methods, BATCHING.replace("4", "2"))


@pytest.mark.parametrize("change", ["requests.pop()", "requests[1] = requests[0]", "requests.append(requests[0])"])
def test_a_list_with_others_in_it_leaves_nobody_waiting(tmp_path: Path, change: str) -> None:
    async def test(model: Any) -> None:
        callers = [Caller(n, TERMS) for n in range(4)]
        submit(model, *callers)
        for caller in callers:
            await asyncio.wait_for(caller.done.wait(), 5)
            assert len(caller.answers) == 1
        assert is_idle(model)

    play(tmp_path, test, f"def execute(self, requests):\n    {change}\n    return [answer(r) for r in requests]\n")


@pytest.mark.parametrize("name", ["uniform_data", "FrameBody"])
def test_answers_that_cannot_be_sent_are_a_failure_and_no_end(tmp_path: Path, name: str) -> None:
    async def test(model: Any) -> None:
        options = TERMS if name == "uniform_data" else None
        callers = [Caller(n, options or RequestOptions(("y",), 1, TERMS.shape_key)) for n in range(4)]
        submit(model, *callers)
        for caller in callers:
            found = await caller.error(5)
            assert isinstance(found, BackendError)
            assert "MemoryError: there is none left" in str(found)
        assert is_idle(model)
        callers = [Caller(n, TERMS) for n in range(4)]
        submit(model, *callers)
        assert (await callers[3].outputs(5))["y"].tolist() == [[6]]

    play(tmp_path, test, NO_MEMORY.format(name=name, rest="return [answer(r) for r in requests]"))


def test_a_response_that_cannot_be_sent_ends_its_request(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, first := Caller(1))
        await asyncio.wait_for(first.done.wait(), 5)
        assert [(outputs, final) for outputs, _, final in first.parts] == [(None, True)]
        assert "there is none left" in str(first.parts[0][1])
        submit(model, second := Caller(2))
        await asyncio.wait_for(second.done.wait(), 5)
        assert [p[0]["y"].tolist() for p in second.parts if p[0]] == [[[4]]]
        await until(lambda: is_idle(model))

    rest = "requests[0].get_response_sender().send(answer(requests[0]), 1)"
    play(tmp_path, test, NO_MEMORY.format(name="FrameBody", rest=rest), DECOUPLED)


@pytest.mark.slow
def test_a_request_that_is_given_back_for_ever_ends_when_its_caller_gives_up(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(1))
        await until(lambda: model.statistics.execution_count > 3, 5)
        await until(lambda: model.statistics.pending == 0)
        model.cancel(caller)
        assert isinstance(await caller.error(5), CancelledError)
        assert is_idle(model)

    methods = """
    def execute(self, requests):
        for request in requests:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        time.sleep(0.05)
        return [None] * len(requests)
    """
    play(tmp_path, test, methods, "")


@pytest.mark.slow
def test_many_open_requests_are_given_up_at_once(tmp_path: Path) -> None:
    count = 20_000

    async def test(model: Any) -> None:
        callers = [Caller(n, TERMS) for n in range(count)]
        submit(model, *callers)
        await until(lambda: model.statistics.pending == 0)
        begun = thread_time()
        for caller in callers:
            model.cancel(caller)
        assert thread_time() - begun < 2
        for caller in callers:
            await asyncio.wait_for(caller.done.wait(), 10)
        await until(lambda: is_idle(model))
        assert kept_of(process_instance(model), int) < count

    methods = """
    held = []
    def execute(self, requests):
        self.held += [r.get_response_sender() for r in requests]
        if len(self.held) == COUNT:
            import threading
            threading.Thread(target=self.wait, daemon=True).start()
    def wait(self):
        while self.held:
            time.sleep(0.01)
            if self.held[-1].is_cancelled():
                self.held.clear()
    """
    more = DECOUPLED + " dynamic_batching {}"
    play(tmp_path, test, methods.replace("COUNT", str(count)), more)


@pytest.mark.slow
def test_forms_with_long_parameters_are_not_all_kept(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        for n in range(20):
            parameters = {"long": f"{n}" * 1_000_000}
            submit(model, caller := Caller(n, RequestOptions(("y",), 1, TERMS.shape_key, parameters)))
            outputs: Any = await caller.outputs()
            assert outputs["y"].tolist() == [[n]]
            assert outputs.parameters["long"] == parameters["long"]
            del outputs, caller, parameters
        texts = [len(one) for one in kept(process_instance(model)) if isinstance(one, (str, bytes))]
        # All 20 have 30 MB, in either direction.
        assert sum(texts) < 40_000_000

    methods = """
    def execute(self, requests):
        import json
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", r.inputs()[0].as_numpy())], parameters=json.loads(r.parameters())
            )
            for r in requests
        ]
    """
    play(tmp_path, test, methods, "")


def test_a_form_that_came_among_others_travels_in_one_piece_later(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        others = [RequestOptions(("y",), 1, TERMS.shape_key) for _ in range(3)]
        for options in ([TERMS, *others], [TERMS] * 4):
            callers = [Caller(n, t) for n, t in enumerate(options)]
            submit(model, *callers)
            for n, caller in enumerate(callers):
                assert (await caller.outputs())["y"].tolist() == [[2 * n]]
        assert process_instance(model)._writer._uniform[TERMS] is not None

    play(tmp_path, test, "def execute(self, requests):\n    return [answer(r) for r in requests]\n")


def test_a_response_to_a_call_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        sent: list[OutgoingFrame] = []
        writer = BatchWriter(model.spec)
        calls = BlsCalls(None, writer, lambda number, offset, size: np.zeros(size, np.uint8), sent.extend, lambda: 0)
        request = CalledRequest(calls, 7, model, TERMS, {}, "an id")
        calls._running[7] = request
        request.respond({"y": np.array(["2026-01-01"], "datetime64[D]")}, None)
        assert len(sent) == 1
        assert b"[request id: an id] a response to a call could not be written" in sent[0][0]
        assert not calls._running

    play(tmp_path, test, "def execute(self, requests):\n    return [answer(r) for r in requests]\n")


# Questions while a model loads


def test_a_model_that_does_not_read_its_answers_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    methods = """
    def initialize(self, args):
        from naiad_worker.api import current as active; from naiad_worker.ipc import frames as protocol
        session = active.running()
        session.channel._reading.acquire()
        for number in range(50_000):
            session.out.post_json(protocol.CONTROL_REQUEST, 1000 + number, {"what": "is_model_ready", "name": "m"})
        time.sleep(60)
    def execute(self, requests):
        return []
    """
    write_model(tmp_path, methods)

    async def main() -> None:
        longest, begun = 0.0, monotonic()

        async def watch() -> None:
            nonlocal longest
            while True:
                seen = monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, monotonic() - seen)

        watching = asyncio.create_task(watch())
        async with serving(tmp_path) as engine:
            with pytest.raises(NotFoundError):
                engine.find("m", "")
        watching.cancel()
        assert longest < 2
        assert monotonic() - begun < 20

    run(main())


@pytest.mark.slow
def test_what_was_asked_before_a_model_was_ready_is_answered_after(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        async def answered() -> float:
            submit(model, caller := Caller(np.zeros(10_000)))
            return float((await caller.outputs())["y"][0, 0])

        async with asyncio.timeout(10):
            while await answered() < 2000:
                await asyncio.sleep(0)

    methods = """
    answered = 0
    def initialize(self, args):
        import threading
        threading.Thread(target=self.ask, daemon=True).start()
        while not self.answered:
            time.sleep(0.001)
    def ask(self):
        for _ in range(2000):
            try:
                pb_utils.is_model_ready("m")
            except pb_utils.TritonModelException:
                pass
            self.answered += 1
    def execute(self, requests):
        x = np.full((1, 10_000), self.answered, np.float32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for _ in requests]
    """
    play(tmp_path, test, methods, "")


def test_nonsense_while_it_starts_is_an_error_and_no_process_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    methods = """
    def initialize(self, args):
        from naiad_worker.api import current as active
        active.running().out._connection.sendall(bytes([44, 0, 0, 0, 4, 0, 0, 0]) + bytes(8) + b"what")
        time.sleep(60)
    def execute(self, requests):
        return []
    """
    write_model(tmp_path, methods)

    async def main() -> None:
        async with serving(tmp_path) as engine:
            with pytest.raises(NotFoundError):
                engine.find("m", "")
            assert "what cannot be understood while it started" in caplog.text

    run(main())
