"""Calls of a client library to a server, in a process of its own.

``python -m benchmarks.client_calls KIND URL CALLERS SECONDS`` prints one JSON line: the rate in calls per second and
the processor time of a call in microseconds. Every response is compared with its request.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

X = np.arange(16, dtype=np.float32)
MODEL = "echo"


def _check(found: Any) -> None:
    if found is None or found[15] != X[15]:
        raise SystemExit(f"found {found}, expected {X}")


def _naiad(url: str, callers: int) -> Callable[[], None]:
    from naiad.client import Client

    client = Client(url)
    return lambda: _check(client.infer(MODEL, {"x": X})["y"])


def _naiad_aio(url: str, callers: int) -> Callable[[], Awaitable[None]]:
    from naiad.client import AsyncClient

    client = AsyncClient(url)

    async def call() -> None:
        _check((await client.infer(MODEL, {"x": X}))["y"])

    return call


def _triton_request(module: Any) -> dict[str, Any]:
    given = module.InferInput("x", [16], "FP32")
    given.set_data_from_numpy(X)
    return {"model_name": MODEL, "inputs": [given]}


def _triton(url: str, callers: int) -> Callable[[], None]:
    import tritonclient.http as http

    # One for each thread: its authors say that it is for one thread only.
    local = threading.local()

    def call() -> None:
        if not hasattr(local, "client"):
            local.client = http.InferenceServerClient(url)
        _check(local.client.infer(**_triton_request(http)).as_numpy("y"))

    return call


def _triton_aio(url: str, callers: int) -> Callable[[], Awaitable[None]]:
    import tritonclient.http as http
    import tritonclient.http.aio as aio

    made: list[Any] = []

    async def call() -> None:
        if not made:
            made.append(aio.InferenceServerClient(url, conn_limit=callers))
        _check((await made[0].infer(**_triton_request(http))).as_numpy("y"))

    return call


def _triton_grpc(url: str, callers: int) -> Callable[[], None]:
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(url)
    return lambda: _check(client.infer(**_triton_request(grpc)).as_numpy("y"))


def _triton_grpc_aio(url: str, callers: int) -> Callable[[], Awaitable[None]]:
    import tritonclient.grpc as grpc
    import tritonclient.grpc.aio as aio

    made: list[Any] = []

    async def call() -> None:
        if not made:
            made.append(aio.InferenceServerClient(url))
        _check((await made[0].infer(**_triton_request(grpc))).as_numpy("y"))

    return call


CALLS = {"naiad": _naiad, "triton": _triton, "triton_grpc": _triton_grpc}
COROUTINES = {"naiad_aio": _naiad_aio, "triton_aio": _triton_aio, "triton_grpc_aio": _triton_grpc_aio}


def _by_threads(call: Callable[[], None], callers: int, seconds: float) -> int:
    counts = [0] * callers
    end = time.perf_counter() + seconds

    def run(caller: int) -> None:
        while time.perf_counter() < end:
            call()
            counts[caller] += 1

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts)


async def _by_coroutines(call: Callable[[], Awaitable[None]], callers: int, seconds: float) -> int:
    end = time.perf_counter() + seconds

    async def run() -> int:
        count = 0
        while time.perf_counter() < end:
            await call()
            count += 1
        return count

    return sum(await asyncio.gather(*(run() for _ in range(callers))))


def main(kind: str, url: str, callers: int, seconds: float) -> dict[str, float]:
    """Call for ``seconds``, after a warm-up of a fifth of that."""
    if kind.endswith("_aio"):
        coroutine = COROUTINES[kind](url, callers)
        with asyncio.Runner() as runner:
            runner.run(_by_coroutines(coroutine, callers, seconds / 5))
            begun, used = time.perf_counter(), time.process_time()
            count = runner.run(_by_coroutines(coroutine, callers, seconds))
    else:
        call = CALLS[kind](url, callers)
        _by_threads(call, callers, seconds / 5)
        begun, used = time.perf_counter(), time.process_time()
        count = _by_threads(call, callers, seconds)
    took, used = time.perf_counter() - begun, time.process_time() - used
    return {"rate": count / took, "cpu_us": used / count * 1e6}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))), flush=True)
