"""The official client's asyncio flavour, tritonclient.grpc.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from interop.calls import ANY_SIZE, CALL_S, OWN_CONNECTION, cancelled_in_queue, same, vector, wait_until_idle
from interop.models import DELAY_MS, VALUES
from naiad.testing import RunningServer
from support.triton_inputs import input_of

DELAY_S = DELAY_MS / 1000


def with_client(server: RunningServer, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test that needs one client, within a time limit."""

    async def body() -> None:
        options = [OWN_CONNECTION, *ANY_SIZE]
        async with triton_aio.InferenceServerClient(server.grpc_url, channel_args=options) as client:
            await asyncio.wait_for(test(client), 2 * CALL_S)

    asyncio.run(body())


def test_describing(server: RunningServer) -> None:
    async def test(client: Any) -> None:
        assert await client.is_server_live()
        assert await client.is_server_ready(client_timeout=CALL_S)
        assert await client.is_model_ready("sum", "1")
        assert not await client.is_model_ready("nope")
        assert (await client.get_server_metadata(as_json=True))["name"] == "nymph"
        assert (await client.get_model_metadata("sum")).name == "sum"
        assert (await client.get_model_config("sum")).config.max_batch_size == 8
        assert len((await client.get_inference_statistics("versions")).model_stats) == 2
        assert "sum" in {m.name for m in (await client.get_model_repository_index()).models}

    with_client(server, test)


def test_all_datatypes_at_once(server: RunningServer) -> None:
    async def test(client: Any) -> None:
        calls = [
            client.infer(
                f"id_{d}",
                [input_of(triton, "INPUT0", v, d)],
                request_id=d,
                client_timeout=CALL_S,
                headers={"name": "value"},
            )
            for d, v in VALUES.items()
        ]
        for (datatype, values), result in zip(VALUES.items(), await asyncio.gather(*calls), strict=True):
            assert result.get_response().id == datatype
            assert same(result.as_numpy("OUTPUT0"), values)

    with_client(server, test)


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_compression(compressing: RunningServer, compression: str | None) -> None:
    values = np.arange(100_000, dtype=np.uint32).view(np.uint8)

    async def test(client: Any) -> None:
        result = await client.infer(
            "large", [input_of(triton, "INPUT0", values, "UINT8")], compression_algorithm=compression
        )
        assert same(result.as_numpy("OUTPUT0"), values)

    with_client(compressing, test)


def test_errors(server: RunningServer) -> None:
    async def test(client: Any) -> None:
        with pytest.raises(InferenceServerException) as failure:
            await client.infer("nöpe", vector(1))
        assert failure.value.status() == "StatusCode.NOT_FOUND"
        assert failure.value.message() == "Request for unknown model: 'nöpe' is not found"
        with pytest.raises(InferenceServerException) as failure:
            await client.get_inference_statistics("nope")
        assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"

    with_client(server, test)


@pytest.mark.slow
def test_timeouts_and_cancelling(server: RunningServer, slow: str) -> None:
    async def test(client: Any) -> None:
        with pytest.raises(InferenceServerException) as failure:
            await client.infer(slow, vector(1), client_timeout=DELAY_S / 3)
        assert failure.value.status() == "StatusCode.DEADLINE_EXCEEDED"
        tasks = [asyncio.ensure_future(client.infer(slow, vector(i), client_timeout=CALL_S)) for i in range(5)]
        await asyncio.to_thread(server.wait_pending, slow, 5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(server.wait_pending, slow, 0)

    with_client(server, test)
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 5


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_a_stream(server: RunningServer, compression: str | None) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for datatype, values in VALUES.items():
            yield {
                "model_name": f"id_{datatype}",
                "inputs": [input_of(triton, "INPUT0", values, datatype)],
                "request_id": datatype,
            }
        yield {"model_name": "nope", "inputs": vector(1)}

    async def test(client: Any) -> None:
        answers = [
            a async for a in client.stream_infer(requests(), stream_timeout=CALL_S, compression_algorithm=compression)
        ]
        for (datatype, values), (result, error) in zip(VALUES.items(), answers, strict=False):
            assert error is None
            assert result.get_response().id == datatype
            assert same(result.as_numpy("OUTPUT0"), values)
        assert len(answers) == len(VALUES) + 1
        result, error = answers[-1]
        assert result is None
        assert error.message() == "Request for unknown model: 'nope' is not found"

    with_client(server, test)


@pytest.mark.slow
def test_cancelling_a_stream(server: RunningServer, slow: str) -> None:
    async def requests() -> AsyncIterator[dict[str, Any]]:
        for i in range(6):
            yield {"model_name": slow, "inputs": vector(i)}

    async def test(client: Any) -> None:
        answers = client.stream_infer(requests())
        reading = asyncio.ensure_future(anext(aiter(answers)))
        await asyncio.to_thread(server.wait_pending, slow, 5)
        answers.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.to_thread(server.wait_pending, slow, 0)

    with_client(server, test)
    wait_until_idle(server, slow, ran=1)
    assert cancelled_in_queue(server, slow) == 5
