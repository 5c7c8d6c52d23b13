"""Functions that are bound as models, over the network: the official clients are the peers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from queue import SimpleQueue
from typing import Annotated, Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client

import naiad
from naiad.errors import ModelLoadError
from naiad.inprocess.server import Server
from naiad.testing import wait_until

Vector = Annotated[np.ndarray, naiad.FP32[-1]]
X = np.arange(4, dtype=np.float32)


class Slow:
    """Blocks until it is allowed to go on."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.go_on = threading.Event()

    def __call__(self, x: Vector) -> Vector:
        self.running.release()
        assert self.go_on.wait(60)
        return x


def repeat(text: str, times: int = 2) -> Iterator[str]:
    for number in range(times):
        yield f"{text}{number}"


async def count_slowly(x: Vector) -> AsyncIterator[Vector]:
    import asyncio

    for value in x:
        await asyncio.sleep(0)
        yield np.array([value], np.float32)


async def meet(x: Vector) -> Vector:
    """Waits until two requests are here."""
    import asyncio

    MET.append(1)
    while len(MET) % 2:
        await asyncio.sleep(0.001)
    return x


MET: list[int] = []


class Counter:
    def setup(self, device: str) -> None:
        self.calls = 0

    def predict(self, x: Vector) -> Annotated[np.ndarray, naiad.INT64[2]]:
        self.calls += 1
        return np.array([self.calls, os.getpid()])


def fails(x: Vector) -> Vector:
    raise ValueError(f"no {x[0]:g}")


def stream_fails(x: Vector) -> Iterator[Vector]:
    yield x
    raise ValueError("after one")


@naiad.batch(max_rows=16, max_delay_ms=200)
def sizes(x: Annotated[np.ndarray, naiad.FP32[2]]) -> Annotated[np.ndarray, naiad.INT32[1]]:
    return np.full((len(x), 1), len(x), np.int32)


@naiad.batch(max_rows=16, max_delay_ms=200)
async def awaited_sizes(x: Annotated[np.ndarray, naiad.FP32[2]]) -> Annotated[np.ndarray, naiad.INT32[1]]:
    return sizes(x)


BOUND = (repeat, count_slowly, meet, Counter, fails, stream_fails, sizes, awaited_sizes)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0)
    made.bind("doubler", lambda x: 2 * x)
    for function in BOUND:
        made.bind(function.__name__, function)
        made.bind(f"{function.__name__}_process", function, workers="process")
    with made:
        yield made


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[Any]:
    with http_client.InferenceServerClient(server.http_url, concurrency=4) as client:
        yield client


@pytest.fixture(scope="module")
def grpc(server: Server) -> Iterator[Any]:
    with grpc_client.InferenceServerClient(server.grpc_url) as client:
        yield client


def inputs(kind: Any, **arrays: np.ndarray) -> list[Any]:
    made = []
    for name, array in arrays.items():
        from tritonclient.utils import np_to_triton_dtype

        one = kind.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        one.set_data_from_numpy(array)
        made.append(one)
    return made


def stream(client: Any, model: str, **arrays: np.ndarray) -> list[Any]:
    """The first output of each response, and the text of an error."""
    found: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
    client.start_stream(lambda result, error: found.put((result, error)))
    try:
        client.async_stream_infer(model, inputs(grpc_client, **arrays), enable_empty_final_response=True)
        responses: list[Any] = []
        while True:
            result, error = found.get(timeout=60)
            if error is not None:
                return [*responses, error.message()]
            if result.get_response().outputs:
                responses.append(result.as_numpy("output").tolist())
            if result.get_response().parameters["triton_final_response"].bool_param:
                return responses
    finally:
        client.stop_stream()


def test_a_lambda(http: Any, grpc: Any) -> None:
    for client, kind in ((http, http_client), (grpc, grpc_client)):
        assert client.infer("doubler", inputs(kind, x=X)).as_numpy("output").tolist() == (2 * X).tolist()
    metadata = http.get_model_metadata("doubler")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert metadata["outputs"] == [{"name": "output", "datatype": "FP32", "shape": [-1]}]


@pytest.mark.parametrize("place", ["", "_process"])
def test_a_generator_streams(grpc: Any, place: str) -> None:
    given = {"text": np.array([b"t"], object), "times": np.array([3])}
    assert stream(grpc, f"repeat{place}", **given) == [[b"t0"], [b"t1"], [b"t2"]]
    # A parameter with a default is an optional input.
    assert stream(grpc, f"repeat{place}", text=given["text"]) == [[b"t0"], [b"t1"]]


@pytest.mark.parametrize("place", ["", "_process"])
def test_an_asynchronous_generator_streams(grpc: Any, place: str) -> None:
    assert stream(grpc, f"count_slowly{place}", x=X) == [[0.0], [1.0], [2.0], [3.0]]


@pytest.mark.parametrize("place", ["", "_process"])
def test_coroutines_run_side_by_side_in_one_instance(http: Any, place: str) -> None:
    begun = [http.async_infer(f"meet{place}", inputs(http_client, x=X)) for _ in range(2)]
    assert [b.get_result().as_numpy("output").tolist() for b in begun] == [X.tolist()] * 2


@pytest.mark.parametrize("place", ["", "_process"])
def test_a_class_keeps_its_state(http: Any, place: str) -> None:
    first, second = (http.infer(f"Counter{place}", inputs(http_client, x=X)).as_numpy("output") for _ in range(2))
    assert second[0] - first[0] == 1
    assert (int(first[1]) == os.getpid()) == (place == "")


@pytest.mark.parametrize("place", ["", "_process"])
def test_an_exception_reaches_the_caller_with_its_text(http: Any, grpc: Any, place: str) -> None:
    with pytest.raises(Exception, match="ValueError: no 0"):
        http.infer(f"fails{place}", inputs(http_client, x=X))
    # The model serves on.
    with pytest.raises(Exception, match="ValueError: no 1"):
        http.infer(f"fails{place}", inputs(http_client, x=X + 1))
    *before, error = stream(grpc, f"stream_fails{place}", x=X)
    assert before == [X.tolist()]
    assert "ValueError: after one" in error


@pytest.mark.parametrize("place", ["", "_process"])
@pytest.mark.parametrize("model", ["sizes", "awaited_sizes"])
def test_batches_hold_the_requests_of_several_callers(http: Any, model: str, place: str) -> None:
    rows = np.ones((2, 2), np.float32)
    begun = [http.async_infer(f"{model}{place}", inputs(http_client, x=rows)) for _ in range(4)]
    found = [b.get_result().as_numpy("output").ravel().tolist() for b in begun]
    assert all(len(sizes) == 2 for sizes in found)
    assert max(max(sizes) for sizes in found) > 2


def test_several_instances_run_at_a_time(server: Server) -> None:
    slow = Slow()
    server.bind("slow", slow, instances=2)
    model = server.model("slow")
    responses = [model.infer(inputs={"x": X}) for _ in range(3)]
    for _ in range(2):
        assert slow.running.acquire(timeout=60)
    assert not slow.running.acquire(timeout=0.05)
    slow.go_on.set()
    assert [next(r).outputs["output"].numpy().tolist() for r in responses] == [X.tolist()] * 3


def test_another_function_takes_the_place_of_the_first(server: Server, http: Any) -> None:
    server.bind("changing", lambda x: x)
    server.bind("changing", lambda x: -x)
    assert http.infer("changing", inputs(http_client, x=X)).as_numpy("output").tolist() == (-X).tolist()


def test_a_class_that_cannot_be_set_up_keeps_the_one_that_serves(server: Server, http: Any) -> None:
    class Broken:
        def setup(self, device: str) -> None:
            raise RuntimeError("no weights")

        def predict(self, x: Vector) -> Vector:
            return x

    server.bind("kept", lambda x: x)
    with pytest.raises(ModelLoadError, match="no weights"):
        server.bind("kept", Broken)
    assert http.infer("kept", inputs(http_client, x=X)).as_numpy("output").tolist() == X.tolist()


def test_a_stream_that_nobody_reads_waits(server: Server) -> None:
    made: list[int] = []

    def endless(x: Vector) -> Iterator[Vector]:
        while True:
            made.append(1)
            yield x

    server.bind("endless", endless)
    responses = server.model("endless").infer(inputs={"x": X})
    for _ in range(3):
        assert next(responses).outputs["output"].shape == (4,)
    wait_until(lambda: _rests(made), 30, "the generator waits for its reader")
    before = len(made)
    assert before < 1000
    for _ in range(200):
        next(responses)
    assert len(made) > before
    responses.cancel()
    with pytest.raises(naiad.NaiadError, match="cancelled"):
        for _ in range(10_000):
            next(responses)


def _rests(made: list[int]) -> bool:
    before = len(made)
    time.sleep(0.05)
    return len(made) == before


@pytest.mark.slow
def test_a_stream_that_is_dropped_ends_its_generator(server: Server) -> None:
    ended = threading.Event()

    def endless(x: Vector) -> Iterator[Vector]:
        try:
            while True:
                yield x
        finally:
            ended.set()

    server.bind("dropped", endless)
    responses = server.model("dropped").infer(inputs={"x": X})
    next(responses)
    del responses
    assert ended.wait(30)
