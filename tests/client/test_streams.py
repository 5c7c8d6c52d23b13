"""Streams of both clients: their responses, and the connections that they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing
from itertools import islice

import numpy as np
import psutil
import pytest

import naiad
from naiad.client import AsyncClient, Client
from naiad.inprocess.server import Server
from naiad.testing import wait_until

TIMES = 12
MANY = 300
"""More messages than a client holds of a stream, and so small that they arrive together."""


def count(n: np.ndarray) -> Iterator[np.ndarray]:
    for value in range(int(n[0])):
        yield np.array([value], np.int64)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0)
    made.bind("count", count, inputs={"n": naiad.INT64}, outputs={"y": naiad.INT64})
    made.bind("same", lambda x: x, inputs={"x": naiad.INT64}, outputs={"y": naiad.INT64})
    with made:
        yield made


def up_to(n: int) -> dict[str, np.ndarray]:
    return {"n": np.array([n])}


def with_client(url: str, read: int | None, n: int, then: Callable[[], None]) -> list[int]:
    """Read so many responses of ``TIMES`` streams, ask once more, and call ``then``; the values that were read."""
    with Client(url, timeout_s=10) as client:
        found = []
        for _ in range(TIMES):
            with closing(client.stream("count", up_to(n))) as responses:
                found += [int(each["y"][0]) for each in islice(responses, read)]
        assert client.infer("same", {"x": np.array([7])})["y"][0] == 7
        then()
        return found


async def taken(responses: AsyncIterator[naiad.client.InferResult], read: int | None) -> list[int]:
    found: list[int] = []
    async for each in responses:
        found.append(int(each["y"][0]))
        if len(found) == read:
            break
    return found


def with_async_client(url: str, read: int | None, n: int, then: Callable[[], None]) -> list[int]:
    async def run() -> list[int]:
        async with AsyncClient(url, timeout_s=10) as client:
            found = []
            for _ in range(TIMES):
                async with aclosing(client.stream("count", up_to(n))) as responses:
                    found += await taken(responses, read)
            assert (await client.infer("same", {"x": np.array([7])}))["y"][0] == 7
            await asyncio.to_thread(then)
            return found

    return asyncio.run(run())


@pytest.fixture(params=[with_client, with_async_client], ids=["sync", "async"])
def read_streams(request: pytest.FixtureRequest) -> Callable[..., list[int]]:
    made: Callable[..., list[int]] = request.param
    return made


def open_connections(port: int) -> int:
    """The connections that this process's server has at a port."""
    found = psutil.Process().net_connections("tcp")
    return sum(each.status == psutil.CONN_ESTABLISHED and each.laddr.port == port for each in found)


@pytest.mark.parametrize("read", [1, None], ids=["left", "read"])
def test_streams_leave_no_connections_behind(
    server: Server, read_streams: Callable[..., list[int]], read: int | None
) -> None:
    port = int(server.grpc_url.rpartition(":")[2])

    def check() -> None:
        wait_until(lambda: open_connections(port) <= 1, 10, "the connections of streams that are over are closed")

    found = read_streams(f"grpc://{server.grpc_url}", read, 3, check)
    assert found == ([0] if read else [0, 1, 2]) * TIMES


def test_a_connection_can_be_used_after_a_stream_of_many_responses(
    server: Server, read_streams: Callable[..., list[int]]
) -> None:
    found = read_streams(f"grpc://{server.grpc_url}", None, MANY, lambda: None)
    assert found == list(range(MANY)) * TIMES
