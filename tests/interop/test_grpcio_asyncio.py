"""grpcio's asyncio client: many streams on one channel, and calls that are cancelled as tasks are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import (
    ANY_SIZE,
    CALL_S,
    OWN_CONNECTION,
    cancelled_in_queue,
    floats,
    output,
    request_for,
    same,
    status_of,
    stub,
    sum_request,
    wait_until_idle,
)
from interop.models import DELAY_MS, VALUES
from naiad.testing import RunningServer

DELAY_S = DELAY_MS / 1000
STREAMS = 1000


def run(test: Awaitable[None], within_s: float = 3 * CALL_S) -> None:
    """Run a test on a loop of its own, within a time limit."""

    async def bounded() -> None:
        await asyncio.wait_for(test, within_s)

    asyncio.run(bounded())


@asynccontextmanager
async def opened(server: RunningServer, *options: tuple[str, Any], **more: Any) -> AsyncIterator[Any]:
    """The inference service behind a channel with a connection of its own."""
    all_options = (OWN_CONNECTION, *ANY_SIZE, *options)
    async with grpc.aio.insecure_channel(server.grpc_url, options=all_options, **more) as channel:
        yield stub(channel)


def with_service(server: RunningServer, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test that needs one channel."""

    async def body() -> None:
        async with opened(server) as service:
            await test(service)

    run(body())


async def in_thread(work: Callable[..., Any], *arguments: Any) -> Any:
    """Wait for something about the server without keeping this loop from its calls."""
    return await asyncio.to_thread(work, *arguments)


@pytest.mark.slow
def test_the_unary_methods(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        assert (await service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S)).live
        assert (await service.ServerReady(pb.ServerReadyRequest(), timeout=CALL_S)).ready
        assert (await service.ModelReady(pb.ModelReadyRequest(name="sum"), timeout=CALL_S)).ready
        assert (await service.ServerMetadata(pb.ServerMetadataRequest(), timeout=CALL_S)).name == "nymph"
        assert (await service.ModelMetadata(pb.ModelMetadataRequest(name="sum"), timeout=CALL_S)).name == "sum"
        config = await service.ModelConfig(pb.ModelConfigRequest(name="sum"), timeout=CALL_S)
        assert config.config.max_batch_size == 8
        index = await service.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=CALL_S)
        assert "sum" in {m.name for m in index.models}
        statistics = await service.ModelStatistics(pb.ModelStatisticsRequest(name="sum"), timeout=CALL_S)
        assert [m.name for m in statistics.model_stats] == ["sum"]

    with_service(server, test)


def test_all_datatypes_at_once(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        calls = {
            d: service.ModelInfer(request_for(f"id_{d}", v, d), timeout=CALL_S)
            for d, v in VALUES.items()
            for _ in "123"
        }
        for datatype, call in calls.items():
            assert same(output(await call), VALUES[datatype])

    with_service(server, test)


def test_an_error(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await service.ModelInfer(floats("nöpe", 1), timeout=CALL_S)
        expected = "Request for unknown model: 'nöpe' is not found"
        assert status_of(failure.value) == (grpc.StatusCode.NOT_FOUND, expected)

    with_service(server, test)


@pytest.mark.slow
def test_a_thousand_unary_calls_on_one_channel(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        calls = [service.ModelInfer(sum_request(i, 1), timeout=CALL_S) for i in range(STREAMS)]
        for i, answer in enumerate(await asyncio.gather(*calls)):
            assert (output(answer) == i + 1).all()

    with_service(server, test)


@pytest.mark.slow
def test_a_thousand_open_streams_on_one_channel(server: RunningServer) -> None:
    """All are open at once, each has sent a request and got its answer before the first one goes on."""

    async def test(service: Any) -> None:
        calls = [service.ModelStreamInfer(timeout=2 * CALL_S) for _ in range(STREAMS)]
        for round_ in (1, 2):
            for i, call in enumerate(calls):
                await call.write(sum_request(i, round_, request_id=f"{round_} {i}"))
            for i, call in enumerate(calls):
                answer = (await call.read()).infer_response
                assert answer.id == f"{round_} {i}"
                assert (output(answer) == i + round_).all()
        for call in calls:
            await call.done_writing()
        for call in calls:
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    with_service(server, test)


def test_interleaved_streams_keep_their_own_order(server: RunningServer) -> None:
    async def converse(service: Any, number: int) -> None:
        count = 40

        async def requests() -> AsyncIterator[Any]:
            for i in range(count):
                yield sum_request(number, i, "sum_stream", f"{number} {i}")
                if i % 7 == number % 7:
                    await asyncio.sleep(0)

        answers = [a async for a in service.ModelStreamInfer(requests(), timeout=2 * CALL_S)]
        assert [a.infer_response.id for a in answers] == [f"{number} {i}" for i in range(count)]
        assert [int(output(a.infer_response)[0, 0]) for a in answers] == [number + i for i in range(count)]

    async def test(service: Any) -> None:
        await asyncio.gather(*(converse(service, i) for i in range(25)))

    with_service(server, test)


@pytest.mark.slow
def test_half_close_waits_for_the_answers(server: RunningServer, slow: str) -> None:
    async def test(service: Any) -> None:
        call = service.ModelStreamInfer(timeout=CALL_S)
        for i in range(2):
            await call.write(floats(slow, i, request_id=str(i)))
        await call.done_writing()
        assert [(await call.read()).infer_response.id for _ in range(2)] == ["0", "1"]
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    with_service(server, test)


def test_answers_come_while_the_caller_still_sends(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        call = service.ModelStreamInfer(timeout=CALL_S)
        for i in range(50):
            await call.write(sum_request(i, i))
            answer = await call.read()
            assert (output(answer.infer_response) == 2 * i).all()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF

    with_service(server, test)


@pytest.mark.slow
def test_cancelling_a_task_cancels_its_call(server: RunningServer, slow: str) -> None:
    async def test(service: Any) -> None:
        first = service.ModelInfer(floats(slow, 1), timeout=CALL_S)
        for _ in range(2):
            # Once these are answered, the one before has arrived.
            assert (await service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S)).live
        tasks = [service.ModelInfer(floats(slow, i), timeout=CALL_S) for i in range(10)]
        await in_thread(server.wait_pending, slow, 10)
        for task in tasks:
            task.cancel()
        await in_thread(server.wait_pending, slow, 0)
        assert output(await first) == [1]
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await task

    with_service(server, test)
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 10


def test_cancelling_streams_with_answers_under_way(server: RunningServer) -> None:
    """Half of the streams are given up in the middle; the others get all their answers."""
    values = np.arange(50_000, dtype=np.uint32).view(np.uint8)

    async def converse(service: Any, gives_up: bool) -> None:
        call = service.ModelStreamInfer(timeout=CALL_S)
        for i in range(8):
            await call.write(request_for("large", values, "UINT8", str(i)))
        assert same(output((await call.read()).infer_response), values)
        if gives_up:
            assert call.cancel()
            assert await call.code() is grpc.StatusCode.CANCELLED
            return
        await call.done_writing()
        for _ in range(7):
            assert same(output((await call.read()).infer_response), values)
        assert await call.read() is grpc.aio.EOF

    async def test(service: Any) -> None:
        await asyncio.gather(*(converse(service, i % 2 == 0) for i in range(40)))
        assert (await service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S)).live

    with_service(server, test)


@pytest.mark.slow
def test_cancelling_a_stream_frees_the_queue(server: RunningServer, slow: str) -> None:
    async def test(service: Any) -> None:
        call = service.ModelStreamInfer(timeout=CALL_S)
        for i in range(10):
            await call.write(floats(slow, i))
        await in_thread(server.wait_pending, slow, 9)
        call.cancel()
        await in_thread(server.wait_pending, slow, 0)

    with_service(server, test)
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 9


@pytest.mark.slow
def test_deadlines(server: RunningServer, slow: str) -> None:
    async def test(service: Any) -> None:
        calls = [service.ModelInfer(floats(slow, i), timeout=DELAY_S / 3) for i in range(20)]
        for call in calls:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call
            assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await in_thread(server.wait_pending, slow, 0)

    with_service(server, test)
    # Of those that came in time to be queued, only the first one ran.
    wait_until_idle(server, slow, ran=1)
    assert 0 < cancelled_in_queue(server, slow) <= 19


@pytest.mark.slow
def test_compression_both_ways(compressing: RunningServer) -> None:
    values = np.arange(50_000, dtype=np.uint32).view(np.uint8)

    async def body() -> None:
        for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
            async with opened(compressing, compression=compression) as service:
                request = request_for("large", values, "UINT8")
                calls = [service.ModelInfer(request, timeout=CALL_S) for _ in range(10)]
                assert all(same(output(a), values) for a in await asyncio.gather(*calls))
                answers = [a async for a in service.ModelStreamInfer(iter([request] * 5), timeout=CALL_S)]
                assert [same(output(a.infer_response), values) for a in answers] == [True] * 5

    run(body())


def test_many_channels(server: RunningServer) -> None:
    async def call(number: int) -> None:
        async with opened(server) as service:
            assert output(await service.ModelInfer(sum_request(number, 1), timeout=CALL_S))[0, 0] == number + 1

    async def body() -> None:
        for begin in range(0, 200, 50):
            await asyncio.gather(*(call(i) for i in range(begin, begin + 50)))

    run(body())


def test_wait_for_ready(server: RunningServer) -> None:
    async def test(service: Any) -> None:
        assert (await service.ServerReady(pb.ServerReadyRequest(), timeout=CALL_S, wait_for_ready=True)).ready

    with_service(server, test)
