"""Messages of 20 MB and 200 MB, there and back, bit by bit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import ANY_SIZE, OWN_CONNECTION, channel, output, request_for, same, stub, sum_request
from naiad.testing import RunningServer

SIZES = [
    pytest.param(20_000_000, id="20 MB"),
    pytest.param(200_000_000, id="200 MB", marks=pytest.mark.slow),
]
TRANSFER_S = 60.0


def noise(size: int, seed: int = 0) -> np.ndarray:
    """Bytes that do not repeat: any that is lost, doubled or moved shows."""
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_unary(server: RunningServer, size: int) -> None:
    values = noise(size)
    with channel(server) as opened:
        request = request_for("large", values, "UINT8")
        assert same(output(stub(opened).ModelInfer(request, timeout=TRANSFER_S)), values)
        # The connection is as good as before.
        assert (output(stub(opened).ModelInfer(sum_request(1, 2), timeout=TRANSFER_S)) == 3).all()


@pytest.mark.parametrize("size", SIZES)
def test_stream(server: RunningServer, size: int) -> None:
    values = noise(size)
    requests = [sum_request(1, 2), request_for("large", values, "UINT8"), sum_request(3, 4)]
    with channel(server) as opened:
        answers = stub(opened).ModelStreamInfer(iter(requests), timeout=TRANSFER_S)
        assert (output(next(answers).infer_response) == 3).all()
        assert same(output(next(answers).infer_response), values)
        assert (output(next(answers).infer_response) == 7).all()
        assert next(answers, None) is None


def test_many_at_once_on_one_connection(server: RunningServer) -> None:
    """Large messages both ways beside small ones: all arrive, and the small ones are not kept waiting for all."""

    async def body() -> None:
        async with grpc.aio.insecure_channel(server.grpc_url, options=(OWN_CONNECTION, *ANY_SIZE)) as opened:
            service = stub(opened)
            values = [noise(5_000_000 + i, i) for i in range(6)]
            large = [service.ModelInfer(request_for("large", v, "UINT8"), timeout=TRANSFER_S) for v in values]
            small = [service.ModelInfer(sum_request(i, 1), timeout=TRANSFER_S) for i in range(50)]
            for i, answer in enumerate(await asyncio.gather(*small)):
                assert (output(answer) == i + 1).all()
            for expected, answer in zip(values, await asyncio.gather(*large), strict=True):
                assert same(output(answer), expected)

    asyncio.run(body())


def test_a_reader_that_is_slow(server: RunningServer) -> None:
    """20 MB of answers for a caller that takes them one by one, through the default windows of its stack."""
    values = noise(2_000_000)

    async def requests() -> AsyncIterator[Any]:
        for i in range(10):
            yield request_for("large", values, "UINT8", str(i))

    async def body() -> None:
        async with grpc.aio.insecure_channel(server.grpc_url, options=(OWN_CONNECTION, *ANY_SIZE)) as opened:
            call = stub(opened).ModelStreamInfer(requests(), timeout=TRANSFER_S)
            for i in range(10):
                answer = (await call.read()).infer_response
                assert answer.id == str(i)
                assert same(output(answer), values)
                # Another call on the same connection is not stuck behind what was not taken.
                assert (await stub(opened).ServerLive(pb.ServerLiveRequest(), timeout=TRANSFER_S)).live
            assert await call.read() is grpc.aio.EOF

    asyncio.run(body())
