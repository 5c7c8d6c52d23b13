"""Large tensors in memory that client and server share, against real servers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import naiad
from naiad.client import AsyncClient, Client, ConnectionFailedError, ResponseError, RetryPolicy
from naiad.client.encode import InferOptions
from naiad.client.region_pool import RegionPool
from naiad.inprocess.server import Server

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="shared memory of POSIX")

LARGE = np.arange(100_000, dtype=np.float32)
SMALL = np.arange(16, dtype=np.float32)


def rows_above(x: np.ndarray) -> np.ndarray:
    """As many elements as are above zero: the size of the output depends on the elements."""
    return x[x > 0]


def refuse(x: np.ndarray) -> np.ndarray:
    raise ValueError("no such numbers")


def make_server(is_allowed: bool = True) -> Server:
    made = Server(
        http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0, allow_client_shm=is_allowed
    )
    made.bind("echo", lambda x: x, inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32})
    made.bind("pair", lambda x: (x, x[:4]), inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32, "z": naiad.FP32})
    made.bind("above", rows_above, inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32})
    made.bind("refuse", refuse, inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32})
    made.bind("texts", lambda x: x, inputs={"x": naiad.BYTES}, outputs={"y": naiad.BYTES})
    return made


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with make_server() as made:
        yield made


@pytest.fixture(params=["http", "grpc"])
def url(server: Server, request: pytest.FixtureRequest) -> str:
    return server.http_url if request.param == "http" else f"grpc://{server.grpc_url}"


def regions(server: Server) -> list[str]:
    """The names of the regions that a server has."""
    import tritonclient.http

    client = tritonclient.http.InferenceServerClient(server.http_url.removeprefix("http://"))
    try:
        return [entry["name"] for entry in client.get_system_shared_memory_status()]
    finally:
        client.close()


def files() -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith("naiad-client-") and f"-{os.getpid()}-" in name]


def test_large_tensors_use_a_region_both_ways(server: Server, url: str) -> None:
    with Client(url) as client:
        for _ in range(4):
            assert np.array_equal(client.infer("echo", {"x": LARGE})["y"], LARGE)
            assert np.array_equal(client.infer("echo", {"x": SMALL})["y"], SMALL)
        # One for the inputs, and one with room for the output as well once its size is known.
        assert 1 <= len(regions(server)) <= 3
        assert not files()
        result = client.infer("pair", {"x": LARGE})
        result = client.infer("pair", {"x": LARGE})
        result = client.infer("pair", {"x": LARGE})
        assert np.array_equal(result["y"], LARGE) and np.array_equal(result["z"], LARGE[:4])
        assert np.array_equal(client.infer("pair", {"x": LARGE}, outputs=["z"])["z"], LARGE[:4])
    assert regions(server) == []


def test_coroutines_use_regions(server: Server, url: str) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            for _ in range(4):
                found = await asyncio.gather(*(client.infer("echo", {"x": LARGE + n}) for n in range(8)))
                assert all(np.array_equal(one["y"], LARGE + n) for n, one in enumerate(found))
            assert regions(server)
            # A request that is given up may be read by the server still: its region is not used again.
            for _ in range(3):
                task = asyncio.create_task(client.infer("echo", {"x": LARGE}))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert np.array_equal((await client.infer("echo", {"x": -LARGE}))["y"], -LARGE)

    asyncio.run(run())
    assert regions(server) == []


def test_threads_and_clients_beside_each_other(server: Server, url: str) -> None:
    def call(client: Client, number: int) -> bool:
        return all(np.array_equal(client.infer("echo", {"x": LARGE + number})["y"], LARGE + number) for _ in range(6))

    with Client(url) as first, Client(url, shared_memory=True) as second, ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, [first, second] * 4, range(8)))
        assert regions(server)
    assert regions(server) == []


def test_arrays_stay_as_they_are(server: Server) -> None:
    client = Client(server.http_url)
    kept = [client.infer("echo", {"x": LARGE + n})["y"] for n in range(6)]
    assert all(np.array_equal(one, LARGE + n) for n, one in enumerate(kept))
    with pytest.raises(ValueError, match="read-only"):
        kept[5][0] = 1
    client.close()
    gc.collect()
    assert all(np.array_equal(one, LARGE + n) for n, one in enumerate(kept))


def test_an_output_that_outgrows_its_place(server: Server, url: str) -> None:
    with Client(url) as client:
        for _ in range(3):
            assert len(client.infer("above", {"x": np.where(LARGE < 70_000, LARGE, -1)})["y"]) == 69_999
        assert len(client.infer("above", {"x": LARGE})["y"]) == 99_999
        assert len(client.infer("above", {"x": LARGE})["y"]) == 99_999


def test_errors_and_other_tensors(server: Server, url: str) -> None:
    with Client(url) as client:
        for _ in range(3):
            with pytest.raises(ResponseError, match="no such numbers"):
                client.infer("refuse", {"x": LARGE})
            with pytest.raises(ResponseError, match="data-type"):
                client.infer("echo", {"x": LARGE.astype(np.float64)})
        texts = np.array([b"a" * 10] * 20_000, object)
        assert client.infer("texts", {"x": texts})["y"][19_999] == b"a" * 10
        assert np.array_equal(client.infer("echo", {"x": LARGE[::2][::-1]})["y"], LARGE[::2][::-1])
        # A step of a sequence cannot run twice, so its outputs are sent.
        for _ in range(3):
            assert client.infer("echo", {"x": LARGE}, parameters={"sequence_id": 0})["y"][7] == 7
    assert regions(server) == []


def test_a_server_that_takes_no_regions(url: str) -> None:
    with make_server(is_allowed=False) as server:
        places = (server.http_url, f"grpc://{server.grpc_url}")
        for place in places:
            with Client(place) as client:
                assert client.infer("echo", {"x": LARGE})["y"][7] == 7
            with Client(place, shared_memory=True) as client:
                assert client.infer("echo", {"x": SMALL})["y"][7] == 7
                with pytest.raises(ResponseError, match="--allow-client-shm=true"):
                    client.infer("echo", {"x": LARGE})
    assert not files()


def test_no_regions_where_none_are_wanted(server: Server, url: str) -> None:
    with Client(url, shared_memory=False) as client:
        for _ in range(3):
            client.infer("echo", {"x": LARGE})
        assert regions(server) == []


def test_somebody_unregisters_all(server: Server, url: str) -> None:
    import tritonclient.http

    with Client(url) as client:
        for number in range(4):
            client.infer("echo", {"x": LARGE + number})
        other = tritonclient.http.InferenceServerClient(server.http_url.removeprefix("http://"))
        other.unregister_system_shared_memory()
        other.close()
        for number in range(4):
            assert np.array_equal(client.infer("echo", {"x": LARGE + number})["y"], LARGE + number)
        assert regions(server)
    assert regions(server) == []


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_server_that_ends_and_returns(kind: str) -> None:
    with make_server() as first:
        address = first.http_url if kind == "http" else f"grpc://{first.grpc_url}"
        port = int(address.rpartition(":")[2])
        client = Client(address, retries=RetryPolicy(attempts=1))
        for _ in range(3):
            client.infer("echo", {"x": LARGE})
    with pytest.raises(ConnectionFailedError):
        client.infer("echo", {"x": LARGE})
    options: dict[str, Any] = {f"{kind}_port": port}
    again = Server(**{"http_address": "127.0.0.1", "grpc_address": "127.0.0.1", "http_port": 0, "grpc_port": 0,
                      "allow_client_shm": True} | options)  # fmt: skip
    again.bind("echo", lambda x: x, inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32})
    with again:
        for _ in range(3):
            assert np.array_equal(client.infer("echo", {"x": LARGE})["y"], LARGE)
        assert regions(again)
        client.close()
        assert regions(again) == []
    assert not files()


CALLER = """
import os, signal, sys
import numpy as np
from naiad.client import Client

x = np.arange(100_000, dtype=np.float32)
client = Client(sys.argv[1])
for _ in range(3):
    kept = client.infer("echo", {"x": x})["y"]
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "fork":
    child = os.fork()
    if not child:
        # Neither its regions nor its connections are those of the parent.
        good = all((client.infer("echo", {"x": x - n})["y"] == x - n).all() for n in range(5))
        good = good and (kept == x).all()
        client.close()
        os._exit(0 if good else 1)
    good = all((client.infer("echo", {"x": x + n})["y"] == x + n).all() for n in range(5))
    _, status = os.waitpid(child, 0)
    good = good and (kept == x).all() and (client.infer("echo", {"x": x + 9})["y"] == x + 9).all()
    sys.exit(0 if good and status == 0 else 1)
"""


def call(server: Server, ending: str) -> int:
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", CALLER, server.http_url, ending]
    return subprocess.run(command, timeout=60, check=False).returncode


def test_a_client_that_nobody_closes_and_one_that_is_killed(server: Server) -> None:
    assert call(server, "end") == 0
    assert regions(server) == []
    assert call(server, "kill") == -signal.SIGKILL
    assert regions(server) and not [name for name in os.listdir("/dev/shm") if name.startswith("naiad-client-")]
    # The next client of the machine unregisters what it has left.
    with Client(server.http_url) as client:
        client.infer("echo", {"x": LARGE})
        assert all(f"-{os.getpid()}-" in name for name in regions(server))
    assert regions(server) == []


def test_a_fork(server: Server) -> None:
    assert call(server, "fork") == 0
    assert regions(server) == []


def test_a_pool_takes_no_more_than_its_limit() -> None:
    pool = RegionPool(is_required=False, limit_bytes=1 << 20)
    taken = [pool.placed("m", {"x": LARGE}, InferOptions(), repeatable=True) for _ in range(4)]
    regions = [one.region for one in taken if one is not None]
    assert sum(region.byte_size for region in regions) <= 1 << 20 and len(regions) == 2
    for region in regions:
        region.unlink()
        pool.discard(region)
    assert pool.placed("m", {"x": LARGE}, InferOptions(), repeatable=True) is not None
    assert pool.placed("m", {"x": np.zeros(1 << 20, np.uint8)}, InferOptions(), repeatable=True) is None
    pool.close()
    for name in files():
        os.unlink(f"/dev/shm/{name}")
