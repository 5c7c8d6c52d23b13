"""Calls of a client library to a server, in a process of its own.

``python -m benchmarks.client_calls KIND URL CALLERS SECONDS ELEMENTS`` prints one JSON line: the rate in calls a
second and the processor time of a call in microseconds. Every response is compared with its request. ``naiad``
shares memory with the server where tensors are large, ``naiad_sent`` sends them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np

MODEL = "echo"


def _check(found: Any, x: np.ndarray[Any, Any]) -> None:
    if found is None or len(found) != len(x) or found[-1] != x[-1]:
        raise SystemExit(f"found {found}, expected {x}")


def _naiad(url: str, callers: int, x: np.ndarray[Any, Any], shared_memory: bool | None = None) -> Callable[[], None]:
    from naiad.client import Client

    client = Client(url, shared_memory=shared_memory)
    return lambda: _check(client.infer(MODEL, {"x": x})["y"], x)


def _naiad_aio(
    url: str, callers: int, x: np.ndarray[Any, Any], shared_memory: bool | None = None
) -> Callable[[], Awaitable[None]]:
    from naiad.client import AsyncClient

    client = AsyncClient(url, shared_memory=shared_memory)

    async def call() -> None:
        _check((await client.infer(MODEL, {"x": x}))["y"], x)

    return call


def _triton_request(module: Any, x: np.ndarray[Any, Any]) -> dict[str, Any]:
    given = module.InferInput("x", [len(x)], "FP32")
    given.set_data_from_numpy(x)
    return {"model_name": MODEL, "inputs": [given]}


def _triton(url: str, callers: int, x: np.ndarray[Any, Any]) -> Callable[[], None]:
    import tritonclient.http as http

    # One for each thread: its authors say that it is for one thread only.
    local = threading.local()

    def call() -> None:
        if not hasattr(local, "client"):
            local.client = http.InferenceServerClient(url)
        _check(local.client.infer(**_triton_request(http, x)).as_numpy("y"), x)

    return call


def _triton_aio(url: str, callers: int, x: np.ndarray[Any, Any]) -> Callable[[], Awaitable[None]]:
    import tritonclient.http as http
    import tritonclient.http.aio as aio

    made: list[Any] = []

    async def call() -> None:
        if not made:
            made.append(aio.InferenceServerClient(url, conn_limit=callers))
        _check((await made[0].infer(**_triton_request(http, x))).as_numpy("y"), x)

    return call


def _triton_grpc(url: str, callers: int, x: np.ndarray[Any, Any]) -> Callable[[], None]:
    import tritonclient.grpc as grpc

    client = grpc.InferenceServerClient(url)
    return lambda: _check(client.infer(**_triton_request(grpc, x)).as_numpy("y"), x)


def _triton_grpc_aio(url: str, callers: int, x: np.ndarray[Any, Any]) -> Callable[[], Awaitable[None]]:
    import tritonclient.grpc as grpc
    import tritonclient.grpc.aio as aio

    made: list[Any] = []

    async def call() -> None:
        if not made:
            made.append(aio.InferenceServerClient(url))
        _check((await made[0].infer(**_triton_request(grpc, x))).as_numpy("y"), x)

    return call


CALLS: dict[str, Callable[..., Callable[[], None]]] = {
    "naiad": _naiad,
    "naiad_sent": partial(_naiad, shared_memory=False),
    "triton": _triton,
    "triton_grpc": _triton_grpc,
}
COROUTINES: dict[str, Callable[..., Callable[[], Awaitable[None]]]] = {
    "naiad_aio": _naiad_aio,
    "naiad_sent_aio": partial(_naiad_aio, shared_memory=False),
    "triton_aio": _triton_aio,
    "triton_grpc_aio": _triton_grpc_aio,
}


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


def main(kind: str, url: str, callers: int, seconds: float, elements: int) -> dict[str, float]:
    """Call with so many FP32 for ``seconds``, after a warm-up of a fifth of that."""
    x = np.arange(elements, dtype=np.float32)
    if kind.endswith("_aio"):
        coroutine = COROUTINES[kind](url, callers, x)
        with asyncio.Runner() as runner:
            runner.run(_by_coroutines(coroutine, callers, seconds / 5))
            begun, used = time.perf_counter(), time.process_time()
            count = runner.run(_by_coroutines(coroutine, callers, seconds))
    else:
        call = CALLS[kind](url, callers, x)
        _by_threads(call, callers, seconds / 5)
        begun, used = time.perf_counter(), time.process_time()
        count = _by_threads(call, callers, seconds)
    took, used = time.perf_counter() - begun, time.process_time() - used
    return {"rate": count / took, "cpu_us": used / count * 1e6}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(main(words[0], words[1], int(words[2]), float(words[3]), int(words[4]))), flush=True)
