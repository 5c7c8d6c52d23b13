"""The clients against real servers, and against one that plays what real ones rarely do."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import naiad
from naiad.client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    DeadlineExceededError,
    InferResult,
    ResponseError,
    RetryPolicy,
)
from naiad.client.grpc_messages import message_class
from naiad.client.response import ClientResponseReader
from naiad.errors import InvalidArgumentError
from naiad.inprocess.server import Server
from naiad.wire.http2 import frames
from support.client_peers import Waiting, playing

X = np.arange(4, dtype=np.float32)
QUICK = RetryPolicy(first_pause_s=0.001, longest_pause_s=0.002)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b'HTTP/1.1 503 Service Unavailable\r\nContent-Length: 16\r\n\r\n{"error":"busy"}'
REFUSED = b'HTTP/1.1 400 Bad Request\r\nContent-Length: 15\r\n\r\n{"error":"bad"}'


async def later(x: np.ndarray) -> np.ndarray:
    await asyncio.sleep(float(x[0]))
    return x


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0)
    for kind in (naiad.FP32, naiad.INT64, naiad.BF16, naiad.BOOL, naiad.BYTES, naiad.FP16):
        made.bind(f"echo_{kind.datatype}", lambda x: x, inputs={"x": kind}, outputs={"y": kind})
    made.bind("pair", lambda a, b=None: (a, a if b is None else b),
              inputs={"a": naiad.FP32, "b": naiad.FP32}, outputs={"y": naiad.FP32, "z": naiad.FP32})  # fmt: skip
    made.bind("later", later, inputs={"x": naiad.FP32}, outputs={"y": naiad.FP32})
    with made:
        yield made


Make = Callable[..., Any]


@pytest.fixture(params=[Client, Waiting], ids=["sync", "async"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    """The address of the server in each protocol."""
    return f"http://{server.http_url}" if request.param == "http" else f"grpc://{server.grpc_url}"


# ---- inference


@pytest.mark.parametrize(
    ("datatype", "array"),
    [
        ("FP32", X),
        ("FP32", np.arange(200_000, dtype=np.float32)),
        ("INT64", np.array([2**60, -1])),
        ("BF16", X.astype(ml_dtypes.bfloat16)),
        ("BF16", np.ones(100_000, ml_dtypes.bfloat16)),
        ("FP16", X.astype(np.float16)),
        ("BOOL", np.array([True, False])),
        ("BYTES", np.array([b"a", b"", "ä".encode()], object)),
        ("BYTES", np.array([b"%d" % n for n in range(3000)], object)),
        ("FP32", X[:0]),
    ],
)
def test_arrays_come_back(url: str, make: Make, datatype: str, array: np.ndarray) -> None:
    with make(url) as client:
        for _ in range(2):
            found = client.infer(f"echo_{datatype}", {"x": array})["y"]
            assert found.dtype == array.dtype
            assert found.flags.aligned
            assert found.tolist() == array.tolist()


def test_lists_and_strings(url: str, make: Make) -> None:
    with make(url) as client:
        assert client.infer("echo_FP32", {"x": [1, 2]})["y"].tolist() == [1, 2]
        assert client.infer("echo_BYTES", {"x": ["ä", b"b"]})["y"].tolist() == ["ä".encode(), b"b"]


def test_options_of_a_request(url: str, make: Make) -> None:
    with make(url, headers={"X-Caller": "test"}) as client:
        found = client.infer("pair", {"a": X, "b": -X}, outputs=["z"], request_id="7", version=1,
                             parameters={"timeout": 10_000_000})  # fmt: skip
        assert isinstance(found, InferResult)
        assert (found.model, found.version, found.id, list(found)) == ("pair", "1", "7", ["z"])
        assert found["z"].tolist() == (-X).tolist()
        assert list(client.infer("pair", {"a": X})) == ["y", "z"]


def test_a_request_may_have_headers_of_its_own(make: Make) -> None:
    with playing([OK, OK]) as (url, requests), make(url, headers={"X-Caller": "test"}) as client:
        for headers in ({"X-Own": "ä"}, {}):
            client.infer("m", {"x": X}, headers=headers)
    assert all(b"\r\nX-Caller: test\r\n" in request for request in requests)
    assert [b"\r\nX-Own: \xe4\r\n" in request for request in requests] == [True, False]
    with (
        make("localhost:1") as client,
        pytest.raises(InvalidArgumentError, match="a character that headers cannot have"),
    ):
        client.infer("m", {"x": X}, headers={"X-Own": "\u20ac"})


def test_errors_have_the_text_of_the_server(url: str, make: Make) -> None:
    with make(url) as client:
        with pytest.raises(ResponseError, match="unexpected shape for input 'x'") as error:
            client.infer("echo_FP32", {"x": X.reshape(2, 2)})
        assert error.value.status == 400
        with pytest.raises(ResponseError, match="unknown model: 'nothing'"):
            client.infer("nothing", {"x": X})
        with pytest.raises(InvalidArgumentError, match="input 'x' is an array of complex64"):
            client.infer("echo_FP32", {"x": X.astype(np.complex64)})
        # The connection serves on.
        assert client.infer("echo_FP32", {"x": X})["y"].tolist() == X.tolist()


@pytest.mark.slow
def test_questions(url: str, make: Make) -> None:
    with make(url) as client:
        assert client.live()
        assert client.ready()
        assert client.model_ready("pair")
        assert not client.model_ready("nothing")
        assert client.server_metadata()["version"] == naiad.__version__
        assert client.metadata("echo_FP32")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
        assert client.config("pair")["backend"] == "callable"
        assert client.statistics("pair")["model_stats"][0]["name"] == "pair"
        assert {row["name"] for row in client.index(ready_only=True)} >= {"pair", "echo_FP32"}
        with pytest.raises(ResponseError, match="explicit model load / unload is not allowed"):
            client.load("pair")
        with pytest.raises(ResponseError, match="explicit model load / unload is not allowed"):
            client.unload("pair")


def test_threads_share_a_client(url: str) -> None:
    wrong: list[object] = []
    with Client(url) as client:

        def call(number: int) -> None:
            for step in range(50):
                if client.infer("echo_INT64", {"x": np.array([number, step])})["y"].tolist() != [number, step]:
                    wrong.append((number, step))

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_coroutines_share_a_client(url: str) -> None:
    async def call_all() -> list[list[int]]:
        async with AsyncClient(url) as client:
            calls = (client.infer("echo_INT64", {"x": np.array([number])}) for number in range(100))
            return [found["y"].tolist() for found in await asyncio.gather(*calls)]

    assert asyncio.run(call_all()) == [[number] for number in range(100)]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_coroutines_of_several_loops_one_after_another(url: str) -> None:
    client = AsyncClient(url, timeout_s=30)

    async def ask() -> list[float]:
        return (await client.infer("echo_FP32", {"x": X}))["y"].tolist()

    # The connection of a loop that has ended would never get a response.
    assert [asyncio.run(ask()) for _ in range(3)] == [X.tolist()] * 3

    async def in_two_loops() -> None:
        await ask()
        await asyncio.to_thread(asyncio.run, ask())

    with pytest.raises(InvalidArgumentError, match="make one for each loop"):
        asyncio.run(in_two_loops())
    asyncio.run(client.close())
    # The connections that it forgot warn when they are collected.
    gc.collect()


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in found if not name.startswith("_")}

    assert methods(Client) == methods(AsyncClient)


# ---- failures


def test_a_busy_server_is_tried_again(make: Make) -> None:
    with playing([BUSY, BUSY, OK]) as (url, requests), make(url, retries=QUICK) as client:
        assert client.server_metadata() == {}
        assert len(requests) == 3
    with playing([BUSY] * 3) as (url, requests), make(url, retries=QUICK) as client:
        with pytest.raises(ResponseError, match="busy"):
            client.server_metadata()
        assert len(requests) == 3


def test_a_refusal_is_final(make: Make) -> None:
    with playing([REFUSED, OK]) as (url, requests), make(url, retries=QUICK) as client:
        with pytest.raises(ResponseError, match="bad"):
            client.server_metadata()
        assert len(requests) == 1


def test_a_connection_that_ends_is_replaced(make: Make) -> None:
    with playing([None, OK]) as (url, requests), make(url, retries=QUICK) as client:
        assert client.server_metadata() == {}
        assert len(requests) == 2


def test_a_step_of_a_sequence_is_sent_once(make: Make) -> None:
    with playing([None, OK]) as (url, requests), make(url, retries=QUICK) as client:
        with pytest.raises(ConnectionFailedError, match="closed the connection before its response") as error:
            client.infer("m", {"x": X}, parameters={"sequence_id": 1})
        assert error.value.was_sent
        assert len(requests) == 1


def test_retries_have_a_budget(make: Make) -> None:
    policy = RetryPolicy(attempts=3, first_pause_s=0, budget=0)
    with playing([BUSY] * 100) as (url, requests), make(url, retries=policy) as client:
        for _ in range(20):
            with pytest.raises(ResponseError):
                client.server_metadata()
        assert len(requests) == 20 + 10


def test_a_closed_idle_connection_costs_no_attempt(make: Make) -> None:
    once = RetryPolicy(attempts=1)
    with playing([OK, None, OK]) as (url, requests), make(url, retries=once) as client:
        assert client.server_metadata() == {}
        assert client.server_metadata() == {}
        assert len(requests) == 3


def test_a_deadline_covers_all_attempts(make: Make) -> None:
    never = threading.Event()
    with playing([never, never]) as (url, requests), make(url, timeout_s=0.2) as client:
        begun = time.monotonic()
        with pytest.raises(DeadlineExceededError, match=r"no response within 0\.2 s"):
            client.server_metadata()
        assert time.monotonic() - begun < 10
        never.set()
    assert len(requests) == 1


def test_a_deadline_covers_the_datatypes_of_lists(make: Make) -> None:
    never = threading.Event()
    with playing([never]) as (url, requests), make(url) as client:
        with pytest.raises(DeadlineExceededError, match=r"no response within 0\.2 s"):
            client.infer("m", {"x": [1.0]}, timeout_s=0.2)
        never.set()
    assert requests[0].startswith(b"GET /v2/models/m ")


def test_each_call_of_a_connection_has_a_deadline_of_its_own(url: str, make: Make) -> None:
    with make(url) as client:
        # A machine that is busy enough makes it too late, which is not what is tested.
        with suppress(DeadlineExceededError):
            client.infer("echo_FP32", {"x": X}, timeout_s=0.1)
        # Ends after the deadline of the call before.
        assert client.infer("later", {"x": np.array([0.15], np.float32)}, timeout_s=30)["y"].shape == (1,)
        with pytest.raises(DeadlineExceededError, match=r"no response within 0\.1 s"):
            client.infer("later", {"x": np.array([30], np.float32)}, timeout_s=0.1)


def test_nobody_listens(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"127.0.0.1:{unused.getsockname()[1]}"
    with make(url, retries=QUICK) as client:
        with pytest.raises(ConnectionFailedError) as error:
            client.infer("m", {"x": X})
        assert not error.value.was_sent
        assert not client.live()


@pytest.mark.parametrize(
    "body",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"outputs":[{}]',
        b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: 98\r\nContent-Length: 98\r\n\r\n"
        b'{"outputs":[{"name":"y","datatype":"FP32","shape":[9],"parameters":{"binary_data_size":36}}]}     ',
    ],
)
def test_a_response_that_is_none(make: Make, body: bytes) -> None:
    with playing([body]) as (url, _), make(url) as client, pytest.raises(ResponseError, match="something else than"):
        client.infer("m", {"x": X})


def test_bytes_that_are_no_http(make: Make) -> None:
    policy = RetryPolicy(attempts=1)
    expected = pytest.raises(ConnectionFailedError, match=r"expected a response of HTTP/1\.1, got b'SSH")
    with playing([b"SSH-2.0\r\n\r\n"]) as (url, _), make(url, retries=policy) as client, expected:
        client.server_metadata()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_responses_may_arrive_in_parts(size: int) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    for whole, expected in ((b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"{}"), (chunked, b"abcde")):
        reader = ClientResponseReader()
        found = [reader.feed(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert [f.body for f in found if f is not None] == [expected]


@pytest.mark.parametrize("url", ["", "ftp://a:1", "localhost:x", "http://h:8000/path", "http://"])
def test_wrong_addresses(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="expected one such as localhost:8000"):
        Client(url)


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_headers_cannot_add_lines(scheme: str) -> None:
    with pytest.raises(InvalidArgumentError, match="has a line break"):
        Client(f"{scheme}://localhost:1", headers={"X": "a\r\nY: b"})


# ---- gRPC


def test_grpcio_as_the_server() -> None:
    """Another implementation of HTTP/2: windows of 64 KiB, typed contents, a status with a text."""
    import grpc

    callers: list[str | None] = []

    def handle(message: bytes, context: grpc.ServicerContext) -> bytes:
        callers.append(dict(context.invocation_metadata()).get("x-caller"))
        request = message_class("ModelInferRequest").FromString(message)
        if request.model_name == "broken":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "what is \u00e4?")
        given = request.inputs[0]
        response = message_class("ModelInferResponse")(model_name=request.model_name, id=request.id)
        output = response.outputs.add(name="y", datatype=given.datatype, shape=given.shape)
        if request.model_name == "typed":
            output.contents.fp32_contents.extend(np.frombuffer(request.raw_input_contents[0], np.float32).tolist())
        else:
            response.raw_output_contents.append(request.raw_input_contents[0])
        return bytes(response.SerializeToString())

    server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", -1)])
    handler = grpc.method_handlers_generic_handler(
        "inference.GRPCInferenceService", {"ModelInfer": grpc.unary_unary_rpc_method_handler(handle)}
    )
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        for kind in (Client, Waiting):
            with kind(f"grpc://127.0.0.1:{port}", retries=RetryPolicy(attempts=1)) as client:
                large = np.arange(1_000_000, dtype=np.float32)
                for _ in range(3):
                    assert (client.infer("echo", {"x": large})["y"] == large).all()
                assert client.infer("typed", {"x": X})["y"].tolist() == X.tolist()
                with pytest.raises(ResponseError, match="what is \u00e4"):
                    client.infer("broken", {"x": X})
                with pytest.raises(ResponseError, match="Method not found"):
                    client.server_metadata()
                for number in range(3):
                    found = client.infer("echo", {"x": X}, request_id="7", headers={"X-Caller": f"number {number}"})
                    assert found.id == "7"
                client.infer("echo", {"x": X})
                assert callers[-4:] == ["number 0", "number 1", "number 2", None]
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "bad frames of HTTP/2: expected SETTINGS"),
        (frames.SETTINGS_ACK + frames.encode_reset(1, 8), "the server reset the call with CANCEL"),
        (frames.SETTINGS_ACK + frames.encode_frame(frames.HEADERS, 4, 1, b"\xff" * 20), "bad frames of HTTP/2"),
        (frames.encode_frame(frames.SETTINGS, 0, 0, b"abc"), "bad frames of HTTP/2: SETTINGS of 3 bytes"),
    ],
)
def test_a_server_that_breaks_the_protocol(make: Make, sent: bytes, text: str) -> None:
    policy, expected = RetryPolicy(attempts=1), pytest.raises(ConnectionFailedError, match=text)
    with playing([sent, None]) as (url, _), make(f"grpc://{url}", retries=policy, timeout_s=5) as client, expected:
        client.server_metadata()
