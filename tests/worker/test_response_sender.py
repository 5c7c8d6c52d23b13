"""Responses that a model sends itself: in decoupled models, and in others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import Child, Request, Response, worker_of, write_execute, write_model

FAILED = "Failed to process the request(s) for model 'm_0_0', message: "
FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
LET_GO = "released the request without a final response"
REPEAT = f"""
for r in requests:
    n = int(pb_utils.get_input_tensor_by_name(r, "N").as_numpy()[0])
    s = r.get_response_sender()
    for i in range(n):
        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i], np.int32))]))
    s.send({FINAL})
"""


def times(n: int) -> Request:
    return Request({"N": np.array([n], np.int32)})


def sent(responses: list[Response], request: int) -> list[object]:
    """What one request got: numbers, errors, and the end."""
    seen: list[object] = []
    for r in responses:
        if r.request == request:
            seen += [r.error] if r.error else [int(a[0]) for a in r.outputs.values()]
            seen += ["end"] if r.final else []
    return seen


def test_any_number_of_responses(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, REPEAT), decoupled=True) as child:
        responses, done = child.run_decoupled([times(3), times(0)])
        assert done == {}
        assert sent(responses, 1) == [0, 1, 2, "end"]
        assert sent(responses, 2) == ["end"]
        ends = [r for r in responses if r.final]
        assert all(r.flags == p.FLAG_FINAL | p.FLAG_EMPTY for r in ends)


def test_the_end_comes_with_a_response_or_an_error(tmp_path: Path) -> None:
    body = f"""
    requests[0].get_response_sender().send(
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([7]))], parameters={{"p": 1}}), {FINAL})
    requests[1].get_response_sender().send(pb_utils.InferenceResponse(error=pb_utils.TritonError("no")), {FINAL})
    s = requests[2].get_response_sender()
    s.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("not yet", pb_utils.TritonError.UNAVAILABLE)))
    s.send({FINAL})
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        responses, _ = child.run_decoupled([times(1)] * 3)
        assert [sent(responses, n) for n in (1, 2, 3)] == [[7, "end"], ["no", "end"], ["not yet", "end"]]
        assert responses[0].parameters == {"p": 1}
        assert responses[2].code == 14


def test_responses_from_a_thread_after_execute(tmp_path: Path) -> None:
    body = f"""
    def later(senders):
        time.sleep(0.05)
        for s in senders:
            s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1]))]), {FINAL})
    threading.Thread(target=later, args=([r.get_response_sender() for r in requests],)).start()
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute(1, [times(1), times(1)])
        assert child.receive().kind == p.DONE
        child.execute(2, [times(1)], first=3)
        found = [child.receive() for _ in range(4)]
        assert sorted(f.kind for f in found) == [p.RESPONSE] * 3 + [p.DONE]


def test_many_threads_send_at_once(tmp_path: Path) -> None:
    body = f"""
    def work(s, n):
        for i in range(50):
            s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(10 + i, n, np.int32))]))
        s.send({FINAL})
    threads = [threading.Thread(target=work, args=(r.get_response_sender(), n)) for n, r in enumerate(requests)]
    for t in threads: t.start()
    for t in threads: t.join()
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        responses, _ = child.run_decoupled([times(0)] * 8)
        for n in range(8):
            mine = [r for r in responses if r.request == n + 1]
            assert len(mine) == 51
            assert [len(r.outputs["OUT"]) for r in mine[:-1]] == [10 + i for i in range(50)]
            assert all((r.outputs["OUT"] == n).all() for r in mine[:-1])


def test_an_exception_ends_the_requests_that_have_no_end(tmp_path: Path) -> None:
    body = f"""
    self.kept = requests[1].get_response_sender()
    requests[0].get_response_sender().send({FINAL})
    raise RuntimeError("decoupled boom")
    """
    model = write_execute(tmp_path, body)
    with worker_of(model, decoupled=True) as child:
        child.execute(1, [times(1)] * 2)
        (end,) = child.responses(child.expect(p.RESPONSE))
        assert (end.request, end.final) == (1, True)
        done = child.expect(p.DONE)
        assert done.json["message"] == f"{FAILED}RuntimeError: decoupled boom\n\nAt:\n  {model}(10): execute\n"


def test_the_sender_of_a_failed_batch_is_closed(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        f"""
        class TritonPythonModel:
            kept = None
            def execute(self, requests):
                if self.kept is None:
                    self.kept = requests[0].get_response_sender()
                    raise RuntimeError("once")
                try:
                    self.kept.send({FINAL})
                except pb_utils.TritonModelException as e:
                    requests[0].get_response_sender().send(
                        pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e))), {FINAL})
        """,
    )
    with worker_of(model, decoupled=True) as child:
        child.run_failing([times(1)])
        responses, _ = child.run_decoupled([times(1)], batch=2)
        assert responses[0].error == "Unable to send response. Response sender has been closed."


def test_a_decoupled_model_returns_none(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "return []"), decoupled=True) as child:
        assert child.run_failing([times(1)]) == (
            f"{FAILED}Python model 'm_0_0' is using the decoupled mode and the execute function must return None."
        )


def test_a_sender_that_is_let_go_ends_its_request(tmp_path: Path) -> None:
    body = """
    s = requests[0].get_response_sender()
    s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1]))]))
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        responses, _ = child.run_decoupled([times(1), times(1)])
        for request in (1, 2):
            *before, error, end = sent(responses, request)
            assert before == ([1] if request == 1 else [])
            assert LET_GO in str(error)
            assert end == "end"


WRONG = [
    ("s.send()", "Inference Response object must be provided when the response flags is set to zero."),
    ("s.send(GOOD, flags=4)", "Unable to send response. Unsupported flag provided."),
    (f"s.send(GOOD, {FINAL}); s.send({FINAL})", "Unable to send response. Response sender has been closed."),
]
WRONG_IN_DEFAULT_MODE = [
    (
        f"s.send({FINAL})",
        "Unable to send response. Non-decoupled model cannot send complete final before sending a response.",
    ),
    (
        f"s.send(GOOD); s.send(GOOD, {FINAL})",
        "Unable to send response. Non-decoupled model cannot send more than one response.",
    ),
]


@pytest.mark.parametrize(("code", "message"), WRONG)
def test_what_a_sender_refuses(tmp_path: Path, code: str, message: str) -> None:
    body = f"GOOD = pb_utils.InferenceResponse([])\ns = requests[0].get_response_sender()\n{code}"
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute(1, [times(1)])
        done = child.expect(p.DONE, p.RESPONSE, p.LOG)
        assert done.json["message"].startswith(f"{FAILED}TritonModelException: {message}\n\nAt:\n")


@pytest.mark.parametrize(("code", "message"), [*WRONG, *WRONG_IN_DEFAULT_MODE])
def test_what_a_sender_refuses_in_default_mode(tmp_path: Path, code: str, message: str) -> None:
    body = f"GOOD = pb_utils.InferenceResponse([])\ns = requests[0].get_response_sender()\n{code}"
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [times(1)])
        done = child.expect(p.DONE, p.RESPONSE, p.LOG)
        assert done.json["message"].startswith(f"{FAILED}TritonModelException: {message}\n\nAt:\n")


@pytest.mark.parametrize("decoupled", [False, True])
def test_what_is_raised_after_all_final_responses_is_in_the_log(tmp_path: Path, decoupled: bool) -> None:
    body = f"""
    requests[0].get_response_sender().send(pb_utils.InferenceResponse([]), {FINAL})
    raise ValueError("nobody waits any more")
    """
    with worker_of(write_execute(tmp_path, body), decoupled=decoupled) as child:
        child.execute(1, [times(1)])
        line = child.expect(p.LOG, p.RESPONSE).json
        assert line["level"] == "ERROR"
        assert line["message"].startswith(f"{FAILED}ValueError: nobody waits any more")


@pytest.mark.parametrize("returned", ["None", "[None] * len(requests)"])
def test_senders_in_default_mode(tmp_path: Path, returned: str) -> None:
    body = f"""
    for i, r in enumerate(requests):
        s = r.get_response_sender()
        response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i]))])
        if i % 2:
            s.send(response, {FINAL})
        else:
            s.send(response)
            s.send({FINAL})
    return {returned}
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [times(1)] * 2)
        responses = [r for _ in range(3) for r in child.responses(child.expect(p.RESPONSE))]
        assert sent(responses, 1) == [0, "end"]
        assert sent(responses, 2) == [1, "end"]
        assert child.responses(child.expect(p.RESPONSES)) == []


def test_a_sender_beside_returned_responses(tmp_path: Path) -> None:
    body = f"""
    good = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([5]))])
    requests[0].get_response_sender().send(good, {FINAL})
    return [None, good]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [times(1)] * 2)
        assert sent(child.responses(child.expect(p.RESPONSE)), 1) == [5, "end"]
        assert sent(child.responses(child.expect(p.RESPONSES)), 2) == [5, "end"]


def test_a_response_is_not_both_sent_and_returned(tmp_path: Path) -> None:
    body = f"""
    good = pb_utils.InferenceResponse([])
    requests[0].get_response_sender().send(good, {FINAL})
    return [good]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [times(1)])
        child.expect(p.RESPONSE)
        assert child.expect(p.DONE, p.LOG).json["message"] == (
            f"{FAILED}Unable to send response. Non-decoupled model cannot send more than one response."
        )


def test_default_mode_answers_later_or_never(tmp_path: Path) -> None:
    body = f"""
    def later(s):
        time.sleep(0.05)
        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([1]))]), {FINAL})
    threading.Thread(target=later, args=(requests[0].get_response_sender(),)).start()
    requests[1].get_response_sender()
    requests[2].get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([2]))]))
    return [None] * 3
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.execute(1, [times(1)] * 3)
        responses: list[Response] = []
        while sum(r.final for r in responses) < 3:
            responses += child.responses(child.receive())
        assert sent(responses, 1) == [1, "end"]
        assert LET_GO in str(sent(responses, 2)[0])
        assert sent(responses, 3) == [2, "end"]


def test_cancelling(tmp_path: Path) -> None:
    body = f"""
    s = requests[0].get_response_sender()
    i = 0
    while not (s.is_cancelled() and requests[0].is_cancelled()):
        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([i]))]))
        i += 1
        time.sleep(0.001)
    assert not requests[1].is_cancelled()
    requests[1].get_response_sender().send({FINAL})
    s.send({FINAL})
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute(1, [times(1)] * 2)
        child.expect(p.RESPONSE)
        child.send(p.CANCEL, 99)
        child.send(p.CANCEL, 1)
        responses, done = child.collect(1, 2)
        assert done == {}
        assert sent(responses, 2) == ["end"]


def test_a_decoupled_request_is_given_back(tmp_path: Path) -> None:
    body = """
    requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        responses, done = child.run_decoupled([times(1)])
        assert done == {}
        assert [r.flags for r in responses] == [p.FLAG_FINAL | p.FLAG_EMPTY | p.FLAG_RESCHEDULE]


@pytest.mark.slow
def test_pings_are_answered_while_the_model_works(tmp_path: Path) -> None:
    body = f"""
    end = time.monotonic() + 0.8
    while time.monotonic() < end:
        sum(range(1000))
    requests[0].get_response_sender().send({FINAL})
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute(1, [times(1)])
        ping(child, 5)
        child.collect(1, 1)
        ping(child, 6)


def ping(child: Child, number: int) -> None:
    child.send(p.PING, number)
    assert child.expect(p.PONG).number == number
