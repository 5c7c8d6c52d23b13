"""A full server says so on every way in which a request can come, with the status of ``--overload-status``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import h2.events
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from naiad.testing import RESPONSE_S, HttpResponse, RunningServer, read_response, request_bytes, serving
from support.grpc_peers import INFER, Http2Peer, calling
from support.overload_server import inference, refused, wait_held, waiting
from support.served_models import identity, numbers, write_model
from support.shared_regions import memory

STATUSES = {"503": (503, grpc.StatusCode.UNAVAILABLE), "429": (429, grpc.StatusCode.RESOURCE_EXHAUSTED)}
TEXT = "the server has 1 unanswered requests, as many as --max-in-flight-requests allows"
INFER_PATH = "/v2/models/quick/infer"
TEXTS = 3000
REGION = "overload"


@pytest.fixture(scope="module", params=STATUSES)
def status(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["naiad", "grpcio"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def full(status: str, transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that has as many requests as it takes, and goes on having them."""
    folder = tmp_path_factory.mktemp("full")
    write_model(folder / "models", "stuck", identity(delay_ms=120_000))
    write_model(folder / "models", "quick", identity(delay_ms=1))
    write_model(folder / "models", "texts", identity("TYPE_STRING", delay_ms=1))
    write_model(folder / "models", "rows", identity("TYPE_INT32", "4", max_batch_size=4, delay_ms=1))
    options = ("--max-in-flight-requests=1", f"--overload-status={status}", "--allow-client-shm=true")
    more = (f"--grpc-transport={transport}", "--http-max-input-size=268435456")
    with serving(folder / "log", folder / "models", *options, *more) as server:
        with waiting(server, "stuck", 1), memory(1 << 20) as region:
            wait_held(server, 1)
            region.put(np.arange(4, dtype=np.int32))
            packed = serialize_byte_tensor(np.full(TEXTS, b"x" * 60, np.object_))
            region.put(np.frombuffer(packed.tobytes(), np.uint8), 4096)
            with calling(server.grpc_url) as client:
                client.register_system_shared_memory(REGION, region.key, region.size)
            yield server
        assert "Traceback" not in server.log
        server.kill()


# HTTP


def post(server: RunningServer, path: str, body: bytes, *headers: tuple[str, str]) -> HttpResponse:
    return server.request("POST", path, body, headers)


def binary(server: RunningServer) -> HttpResponse:
    part = {"name": "INPUT0", "datatype": "INT32", "shape": [4], "parameters": {"binary_data_size": 16}}
    head = json.dumps({"inputs": [part]}).encode()
    return post(server, INFER_PATH, head + bytes(16), ("Inference-Header-Content-Length", str(len(head))))


def raw(server: RunningServer) -> HttpResponse:
    return post(server, "/v2/models/rows/infer", bytes(16), ("Inference-Header-Content-Length", "0"))


def compressed(server: RunningServer) -> HttpResponse:
    body = gzip.compress(json.dumps(numbers([1])).encode())
    return post(server, INFER_PATH, body, ("Content-Encoding", "gzip"))


def large_compressed(server: RunningServer) -> HttpResponse:
    body = gzip.compress(json.dumps(numbers(range(100_000))).encode())
    return post(server, INFER_PATH, body, ("Content-Encoding", "gzip"))


def large_json(server: RunningServer) -> HttpResponse:
    return post(server, INFER_PATH, json.dumps(numbers(range(200_000))).encode())


def chunked(server: RunningServer) -> HttpResponse:
    body = json.dumps(numbers([1])).encode()
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return post(server, INFER_PATH, framed, ("Transfer-Encoding", "chunked"))


def chunked_large_json(server: RunningServer) -> HttpResponse:
    """Its length is not known before it is whole."""
    body = json.dumps(numbers(range(200_000))).encode()
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return post(server, INFER_PATH, framed, ("Transfer-Encoding", "chunked"))


def region_part(name: str, datatype: str, count: int, offset: int, size: int) -> dict[str, Any]:
    where = {"shared_memory_region": REGION, "shared_memory_offset": offset, "shared_memory_byte_size": size}
    return {"name": name, "datatype": datatype, "shape": [count], "parameters": where}


def region(server: RunningServer) -> HttpResponse:
    return server.infer("quick", {"inputs": [region_part("INPUT0", "INT32", 4, 0, 16)]})


def late_region(server: RunningServer) -> HttpResponse:
    """So many texts are read in a thread."""
    return server.infer("texts", {"inputs": [region_part("INPUT0", "BYTES", TEXTS, 4096, TEXTS * 64)]})


def large_body(server: RunningServer) -> HttpResponse:
    """Only the head is sent, and some of the body."""
    whole = request_bytes("POST", INFER_PATH, bytes(3 << 20))
    with server.connect() as peer:
        peer.sendall(whole[: whole.index(b"\r\n\r\n") + 1000])
        answer = read_response(peer)
        assert answer.headers["connection"] == "close"
        return answer


def expecting(server: RunningServer) -> HttpResponse:
    whole = request_bytes("POST", INFER_PATH, bytes(3 << 20), [("Expect", "100-continue")])
    with server.connect() as peer:
        peer.sendall(whole[: whole.index(b"\r\n\r\n") + 4])
        return read_response(peer)


def generate(server: RunningServer) -> HttpResponse:
    return server.post("/v2/models/quick/generate", {"INPUT0": 1})


def generate_stream(server: RunningServer) -> HttpResponse:
    return server.post("/v2/models/quick/generate_stream", {"INPUT0": 1})


def repeated(server: RunningServer) -> HttpResponse:
    """The second of its kind on one connection: its head and its form are known."""
    with server.connect() as peer:
        peer.sendall(inference("quick"))
        assert read_response(peer).status in (503, 429)
        peer.sendall(inference("quick"))
        return read_response(peer)


WAYS: tuple[Callable[[RunningServer], HttpResponse], ...] = (
    binary, raw, compressed, large_compressed, large_json, chunked, chunked_large_json, region, late_region, large_body,
    expecting, generate, generate_stream, repeated,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_over_http(full: RunningServer, status: str, way: Callable[[RunningServer], HttpResponse]) -> None:
    before = refused(full, "requests")
    answer = way(full)
    assert (answer.status, answer.headers["retry-after"]) == (STATUSES[status][0], "1")
    assert TEXT in answer.error
    assert refused(full, "requests") > before


# gRPC


def message(model: str = "quick", count: int = 4) -> Any:
    given = service_pb2.ModelInferRequest(model_name=model, id="7")
    given.inputs.add(name="INPUT0", datatype="INT32", shape=[count])
    given.raw_input_contents.append(bytes(4 * count))
    return given


def typed() -> Any:
    given = message()
    del given.raw_input_contents[:]
    given.inputs[0].contents.int_contents.extend(range(4))
    return given


def in_region(model: str, datatype: str, count: int, offset: int, size: int) -> Any:
    given = service_pb2.ModelInferRequest(model_name=model, id="7")
    tensor = given.inputs.add(name="INPUT0", datatype=datatype, shape=[count])
    tensor.parameters["shared_memory_region"].string_param = REGION
    tensor.parameters["shared_memory_offset"].int64_param = offset
    tensor.parameters["shared_memory_byte_size"].int64_param = size
    return given


MESSAGES: dict[str, Any] = {
    "raw": message(),
    "typed": typed(),
    "large": message(count=1 << 20),
    "in a region": in_region("quick", "INT32", 4, 0, 16),
    "in a region, read late": in_region("texts", "BYTES", TEXTS, 4096, TEXTS * 64),
}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["", "gzip"])
@pytest.mark.parametrize("kind", MESSAGES)
def test_over_grpc(full: RunningServer, status: str, kind: str, compression: grpc.Compression) -> None:
    before = refused(full, "requests")
    with grpc.insecure_channel(full.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                stub.ModelInfer(MESSAGES[kind], timeout=RESPONSE_S, compression=compression)
            assert caught.value.code() is STATUSES[status][1]
            assert TEXT in caught.value.details()
    assert refused(full, "requests") == before + 2


@pytest.mark.parametrize("kind", MESSAGES)
def test_over_a_stream(full: RunningServer, status: str, kind: str) -> None:
    with grpc.insecure_channel(full.grpc_url) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        asked = [MESSAGES[kind], MESSAGES[kind], MESSAGES["raw"]]
        found = list(stub.ModelStreamInfer(iter(asked), timeout=RESPONSE_S))
        assert [a.infer_response.id for a in found] == ["7"] * 3
        assert all(TEXT in a.error_message for a in found)
        # A caller may ask for a status in place of such answers.
        with pytest.raises(grpc.RpcError) as caught:
            list(stub.ModelStreamInfer(iter(asked), timeout=RESPONSE_S, metadata=(("triton_grpc_error", "true"),)))
        assert caught.value.code() is STATUSES[status][1]
        assert TEXT in caught.value.details()


def test_a_large_message_is_refused_when_it_begins(full: RunningServer, transport: str, status: str) -> None:
    """grpcio gives a server the whole message or nothing."""
    if transport == "grpcio":
        pytest.skip("grpcio receives a message before it tells anybody")
    before = refused(full, "requests")
    with Http2Peer(full.grpc) as peer:
        whole = b"\0" + (50 << 20).to_bytes(4, "big") + bytes(10_000)
        begin_call(peer, whole)
        found = peer.wait(h2.events.ResponseReceived)
        assert isinstance(found, h2.events.ResponseReceived)
        said = dict(found.headers or ())
        assert int(said["grpc-status"]) == STATUSES[status][1].value[0]
        assert "--max-in-flight-requests" in said["grpc-message"]
        assert refused(full, "requests") == before + 1
    # The health of the server is asked on the same way, and small messages.
    with calling(full.grpc_url) as client:
        assert client.is_server_live()


def begin_call(peer: Http2Peer, begun: bytes) -> None:
    """A call of ``ModelInfer`` whose message is not sent to its end."""
    stream = peer.connection.get_next_available_stream_id()
    fixed = [(":method", "POST"), (":scheme", "http"), (":path", INFER), (":authority", "localhost")]
    peer.connection.send_headers(stream, [*fixed, ("content-type", "application/grpc"), ("te", "trailers")])
    peer.connection.send_data(stream, begun)
    peer.flush()


def test_what_was_refused_leaves_nothing_behind(full: RunningServer) -> None:
    """Run last: the request that waits is all there is, and the failures were counted."""
    wait_held(full, 1)
    assert full.get("/v2/health/ready").status == 200
    with calling(full.grpc_url) as client:
        given = triton.InferInput("INPUT0", [1], "INT32")
        given.set_data_from_numpy(np.zeros(1, np.int32))
        with pytest.raises(InferenceServerException, match="unanswered requests"):
            client.infer("quick", [given], client_timeout=RESPONSE_S)
    counted = full.statistics("quick")["inference_stats"]
    assert (counted["success"]["count"], counted["fail"]["count"] > 0) == (0, True)
