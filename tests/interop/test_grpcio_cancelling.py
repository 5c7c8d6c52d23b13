"""Deadlines and cancelled calls, as grpcio's blocking client sees them and as the server's queues show them."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import (
    CALL_S,
    cancelled_in_queue,
    channel,
    executions,
    floats,
    output,
    request_for,
    stub,
    wait_until_idle,
)
from interop.models import DELAY_MS, VALUES
from naiad.testing import RunningServer, wait_until

DELAY_S = DELAY_MS / 1000


def begin(service: Any, model: str) -> Any:
    """A request that occupies a slow model: once two later calls are answered, it has arrived."""
    first = service.ModelInfer.future(floats(model, 1), timeout=CALL_S)
    for _ in range(2):
        assert service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S).live
    return first


def test_a_deadline_ends_a_running_request(server: RunningServer, service: Any, slow: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        service.ModelInfer(floats(slow, 1), timeout=DELAY_S / 3)
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until_idle(server, slow, ran=1)


@pytest.mark.slow
def test_a_deadline_takes_a_request_out_of_the_queue(server: RunningServer, service: Any, slow: str) -> None:
    first = begin(service, slow)
    second = service.ModelInfer.future(floats(slow, 2), timeout=DELAY_S / 2)
    server.wait_pending(slow, 1)
    assert second.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
    server.wait_pending(slow, 0)
    assert output(first.result()) == [1]
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 1


def test_a_deadline_that_has_passed_at_the_start(service: Any, slow: str) -> None:
    for timeout in (0.0, 1e-9, 1e-4):
        with pytest.raises(grpc.RpcError) as failure:
            service.ModelInfer(floats(slow, 1), timeout=timeout)
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_far_deadline(service: Any) -> None:
    for timeout in (60.0, 86_400.0, 1e8):
        assert output(service.ModelInfer(request_for("id_FP32", VALUES["FP32"]), timeout=timeout)).shape == (1, 3)


@pytest.mark.slow
def test_cancelling_takes_requests_out_of_the_queue(server: RunningServer, service: Any, slow: str) -> None:
    first = begin(service, slow)
    others = [service.ModelInfer.future(floats(slow, i), timeout=CALL_S) for i in range(20)]
    server.wait_pending(slow, 20)
    for call in others:
        assert call.cancel()
    server.wait_pending(slow, 0)
    assert output(first.result()) == [1]
    assert {call.code() for call in others} == {grpc.StatusCode.CANCELLED}
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 20


@pytest.mark.slow
def test_cancelling_a_running_request_harms_nobody(server: RunningServer, service: Any, slow: str) -> None:
    first = begin(service, slow)
    second = service.ModelInfer.future(floats(slow, 2), timeout=CALL_S)
    server.wait_pending(slow, 1)
    first.cancel()
    assert output(second.result()) == [2]
    wait_until_idle(server, slow, ran=2)
    assert cancelled_in_queue(server, slow) == 0


@pytest.mark.slow
def test_closing_a_channel_cancels_its_requests(server: RunningServer, slow: str) -> None:
    with channel(server) as kept, channel(server) as closed:
        first = begin(stub(kept), slow)
        # Kept, since a call that nobody refers to is cancelled.
        others = [stub(closed).ModelInfer.future(floats(slow, i), timeout=CALL_S) for i in range(5)]
        server.wait_pending(slow, 5)
        closed.close()
        server.wait_pending(slow, 0)
        assert output(first.result()) == [1]
        assert {call.code() for call in others} == {grpc.StatusCode.CANCELLED}
    wait_until_idle(server, slow, ran=1)


@pytest.mark.slow
def test_cancelling_a_stream_takes_its_requests_out_of_the_queue(
    server: RunningServer, service: Any, slow: str
) -> None:
    call = service.ModelStreamInfer((floats(slow, i) for i in range(30)), timeout=CALL_S)
    server.wait_pending(slow, 29)
    call.cancel()
    server.wait_pending(slow, 0)
    with pytest.raises(grpc.RpcError) as failure:
        list(call)
    assert failure.value.code() is grpc.StatusCode.CANCELLED
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 29


@pytest.mark.slow
def test_a_deadline_ends_a_stream(server: RunningServer, service: Any, slow: str) -> None:
    call = service.ModelStreamInfer((floats(slow, i) for i in range(10)), timeout=DELAY_S * 2.5)
    answers = []
    with pytest.raises(grpc.RpcError) as failure:
        for answer in call:
            answers.append(output(answer.infer_response).tolist())
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # Those in time, and the one that ran at that moment; the others leave the queue.
    assert 0 < len(answers) <= 2
    assert answers == [[float(i)] for i in range(len(answers))]
    wait_until(lambda: executions(server, slow) + cancelled_in_queue(server, slow) == 10, CALL_S, "none is left")
    assert executions(server, slow) <= 3
