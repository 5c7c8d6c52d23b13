"""Requests that are small to send and would be costly to take: each bound holds, and says so."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2

from naiad.frontends.http.json_worker.pool import MANY_VALUES
from naiad.testing import HttpResponse, RunningServer, read_response, request_bytes, serving
from naiad.wire.compression import MAX_MEMBERS
from naiad.wire.http1.chunked import MAX_CHUNKS
from naiad.wire.http1.head import MAX_HEAD_BYTES, MAX_HEADERS
from naiad.wire.v2.header import MAX_DESCRIPTION_BYTES, MAX_ENTRIES
from support.python_models import DOUBLES, write_python_model
from support.served_models import identity, numbers, write_model

MEGABYTE = 1 << 20
GRPC_LIMIT = 4 * MEGABYTE
ANSWER_S = 20.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("bounds")
    models = folder / "models"
    write_model(models, "same", identity())
    write_model(models, "slow", identity(delay_ms=1))
    write_python_model(models, "doubles", DOUBLES)
    options = ("--model-control-mode=explicit", "--load-model=*", f"--grpc-max-input-size={GRPC_LIMIT}")
    with serving(folder / "log", "--model-repository", models, *options) as running:
        yield running
        assert "Traceback" not in running.log


@pytest.fixture(autouse=True)
def serves_and_grew_little(server: RunningServer) -> Iterator[None]:
    before = server.memory_bytes()
    yield
    assert server.infer("same", numbers([1, -2])).json()["outputs"][0]["data"] == [1, -2]
    assert server.memory_bytes() - before < 150 * MEGABYTE


# Depth

DEPTH = 100_000
DEEP = {
    "arrays": b"[" * DEPTH + b"]" * DEPTH,
    "objects": b'{"a":' * DEPTH + b"1" + b"}" * DEPTH,
    "open arrays": b"[" * DEPTH,
    "open objects": b'{"a":' * DEPTH,
    "both": b'[{"a":' * DEPTH + b"1" + b"}]" * DEPTH,
    "arrays with a bare word": b"[" * DEPTH + b"NaN" + b"]" * DEPTH,
}
AROUND = {
    "infer: the body": ("/v2/models/same/infer", b"%b"),
    "infer: data": (
        "/v2/models/same/infer",
        b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[%b]}]}',
    ),
    "infer: parameters": ("/v2/models/same/infer", b'{"parameters":{"a":%b},"inputs":[]}'),
    "infer: an unknown member": ("/v2/models/same/infer", b'{"unknown":%b,"inputs":[]}'),
    "generate": ("/v2/models/same/generate", b'{"INPUT0":%b}'),
    "generate: a parameter": ("/v2/models/same/generate", b'{"INPUT0":1,"parameters":{"x":%b}}'),
    "generate: twice": ("/v2/models/same/generate", b'{"INPUT0":1,"INPUT0":%b}'),
    "generate_stream": ("/v2/models/same/generate_stream", b'{"INPUT0":%b}'),
    "load": ("/v2/repository/models/same/load", b'{"parameters":{"config":%b}}'),
    "load: config": ("/v2/repository/models/same/load", b'{"parameters":{"config":"%b"}}'),
    "unload": ("/v2/repository/models/none/unload", b'{"parameters":%b}'),
    "index": ("/v2/repository/index", b'{"ready":%b}'),
    "log settings": ("/v2/logging", b'{"log_file":%b}'),
    "trace settings": ("/v2/trace/setting", b'{"trace_level":%b}'),
}


@pytest.mark.parametrize("place", AROUND)
def test_deep_json(server: RunningServer, place: str) -> None:
    path, around = AROUND[place]
    for deep in DEEP.values():
        inner = deep.replace(b'"', b'\\"') if '"%b"' in around.decode() else deep
        answer = server.post(path, around % inner)
        # What is wrong with a configuration is a load that failed.
        assert answer.status == (500 if place == "load: config" else 400), answer.body[:300]
        assert answer.error
        assert len(answer.body) < 3000


# Chunks


def chunked(server: RunningServer, path: str, body: bytes) -> HttpResponse:
    """Send a body that is already in chunks, as far as the server takes it."""
    with server.connect() as peer:
        peer.sendall(request_bytes("POST", path, b"", [("Transfer-Encoding", "chunked")]))
        try:
            peer.sendall(body)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return read_response(peer)


def test_a_million_chunks_of_one_byte(server: RunningServer) -> None:
    answer = chunked(server, "/v2/models/same/infer", b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n")
    assert answer.status == 400
    assert f"exceeds maximum of {MAX_CHUNKS} non-empty chunks" in answer.error


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1;" + b"x" * 5000 + b"\r\n", "longer than 1024 bytes"),
        (b"1;" + b"x" * 100_000, "longer than 1024 bytes"),
        (b"0\r\n" + b"a: b\r\n" * 10_000 + b"\r\n", "longer than 8192 bytes"),
        (b"0\r\na: " + b"b" * 100_000, "longer than 8192 bytes"),
        (b"f" * 17 + b"\r\n", "malformed chunk size"),
        (b"F" * 16 + b"\r\n", "exceeds the maximum allowed input size"),
        (b"-1\r\n", "malformed chunk size"),
    ],
)
def test_chunks_with_much_beside_them(server: RunningServer, body: bytes, text: str) -> None:
    answer = chunked(server, "/v2/models/same/infer", body)
    assert answer.status == 400
    assert text in answer.error


# Compression


def packed_zeros(size: int, wbits: int) -> bytes:
    worker = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return b"".join([*[worker.compress(bytes(MEGABYTE)) for _ in range(size // MEGABYTE)], worker.flush()])


@pytest.mark.slow
@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15)])
def test_bombs_over_http(server: RunningServer, coding: str, wbits: int) -> None:
    bomb = packed_zeros(512 * MEGABYTE, wbits)
    assert len(bomb) < MEGABYTE
    before = server.memory_bytes()
    for _ in range(3):
        answer = server.request("POST", "/v2/models/same/infer", bomb, [("Content-Encoding", coding)])
        assert answer.status == 400
        assert "Decompressed data size exceeds the maximum allowed value" in answer.error
    assert server.memory_bytes() - before < 140 * MEGABYTE


def test_several_layers_are_not_peeled(server: RunningServer) -> None:
    inner = json.dumps(numbers([1])).encode()
    twice = gzip.compress(gzip.compress(inner))
    answer = server.request("POST", "/v2/models/same/infer", twice, [("Content-Encoding", "gzip, gzip")])
    assert (answer.status, answer.error) == (501, "Unsupported compression type")
    answer = server.request("POST", "/v2/models/same/infer", twice, [("Content-Encoding", "gzip")])
    assert answer.status == 400


@pytest.mark.slow
def test_gzip_of_several_members(server: RunningServer) -> None:
    body = json.dumps(numbers([1, 2, 3])).encode()

    def ask(packed: bytes) -> HttpResponse:
        return server.request("POST", "/v2/models/same/infer", packed, [("Content-Encoding", "gzip")])

    members = b"".join(gzip.compress(body[at : at + 7]) for at in range(0, len(body), 7))
    answer = ask(members)
    assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [1, 2, 3])
    large = json.dumps(numbers(list(range(100_000)))).encode()
    half = len(large) // 2
    answer = ask(gzip.compress(large[:half]) + gzip.compress(b"") + gzip.compress(large[half:]))
    assert answer.json()["outputs"][0]["data"] == list(range(100_000))
    assert "goes on behind the end" in ask(members + b"x").error
    assert "ends in the middle" in ask(members[:-1]).error
    assert "ends in the middle" in ask(members + b"\x1f\x8b").error
    assert f"more than {MAX_MEMBERS} members" in ask(gzip.compress(b"") * (MAX_MEMBERS + 1)).error
    assert f"more than {MAX_MEMBERS} members" in ask(gzip.compress(b"") * 500_000).error
    half_bomb = packed_zeros(48 * MEGABYTE, 31)
    assert "Decompressed data size exceeds the maximum allowed value" in ask(half_bomb * 2).error


@pytest.mark.slow
@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_bombs_over_grpc(stub: Any, compression: grpc.Compression) -> None:
    request = service_pb2.ModelInferRequest(model_name="same", raw_input_contents=[bytes(256 * MEGABYTE)])
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(request, timeout=ANSWER_S, compression=compression)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


# Heads


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /v2/health/live HTTP/1.1\r\n" + "".join(f"h{n}: x\r\n" for n in range(MAX_HEADERS + 1)), 431),
        ("GET /v2/health/live HTTP/1.1\r\n" + "same: x\r\n" * 5000, 431),
        ("GET /v2/health/live HTTP/1.1\r\nh: " + "x" * MAX_HEAD_BYTES + "\r\n", 431),
        ("GET /" + "x" * MAX_HEAD_BYTES + " HTTP/1.1\r\n", 431),
        ("GET /" + "x" * 60_000 + " HTTP/1.1\r\n", 404),
        ("GET /v2/models/" + "%41" * 20_000 + " HTTP/1.1\r\n", 404),
        ("GET /v2/health/live?" + "a=b&" * 15_000 + " HTTP/1.1\r\n", 200),
        ("G" * 70_000 + " / HTTP/1.1\r\n", 431),
        ("GET /v2/models/same/versions/" + "9" * 60_000 + " HTTP/1.1\r\n", 400),
    ],
)
def test_large_heads(server: RunningServer, head: str, status: int) -> None:
    with server.connect() as peer:
        peer.sendall(head.encode() + b"\r\n")
        answer = read_response(peer)
    assert answer.status == status, answer.body[:200]
    assert len(answer.body) < 70_000


# Many and large parts

INPUT = {"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [1]}
MANY: dict[str, dict[str, Any]] = {
    "inputs": {"inputs": [INPUT] * 100_000},
    "inputs, few bytes": {"inputs": [[]] * 200_000},
    "outputs": {"inputs": [INPUT], "outputs": [{"name": "OUTPUT0"}] * 100_000},
    "parameters": {"inputs": [INPUT], "parameters": {str(n): n for n in range(100_000)}},
    "dimensions": {"inputs": [{**INPUT, "shape": [1] * 100_000}]},
    "parameters of an input": {"inputs": [{**INPUT, "data": None, "parameters": {str(n): n for n in range(100_000)}}]},
}


@pytest.mark.parametrize("what", MANY)
@pytest.mark.parametrize("model", ["same", "slow", "doubles"])
def test_a_hundred_thousand_parts_over_http(server: RunningServer, what: str, model: str) -> None:
    answer = server.infer(model, MANY[what])
    assert answer.status == 400, answer.body[:300]
    assert len(answer.body) < 3000
    small = json.loads(json.dumps(MANY[what]).replace("100000", "5000"))
    for part in ("inputs", "outputs"):
        if len(small.get(part, ())) > 5000:
            small[part] = small[part][: MAX_ENTRIES + 1]
    answer = server.infer(model, small)
    assert answer.status == 400, answer.body[:300]


@pytest.mark.slow
def test_a_hundred_thousand_parts_over_grpc(stub: Any) -> None:
    for change in (
        lambda r: r.inputs.extend([r.inputs[0]] * 100_000),
        lambda r: [r.outputs.add(name="OUTPUT0") for _ in range(100_000)],
        lambda r: [r.parameters[str(n)].MergeFrom(service_pb2.InferParameter(int64_param=n)) for n in range(100_000)],
        lambda r: r.inputs[0].shape.extend([1] * 100_000),
    ):
        request = service_pb2.ModelInferRequest(model_name="same", raw_input_contents=[bytes(4)])
        given = request.inputs.add(name="INPUT0", datatype="INT32")
        given.shape.append(1)
        change(request)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=ANSWER_S)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value


def test_generate_with_many_members(server: RunningServer) -> None:
    answer = server.post("/v2/models/same/generate", {"INPUT0": 1, **{str(n): n for n in range(10_000)}})
    assert answer.status == 400
    assert f"at most {MAX_ENTRIES}" in answer.error
    answer = server.post("/v2/models/same/generate", {"INPUT0": 1, "parameters": {str(n): n for n in range(10_000)}})
    assert answer.status == 400
    repeated = b'{"INPUT0":1' + b',"INPUT0":1' * 200_000 + b"}"
    assert len(repeated) > 2 * MEGABYTE
    for body in (repeated, repeated[:200_010] + b"}"):
        answer = server.post("/v2/models/same/generate", body.replace(b',"INPUT0":}', b"}"))
        assert answer.status == 400, answer.body[:300]


def test_repeated_keys(server: RunningServer) -> None:
    """The last one counts, as for every JSON parser, however often it comes."""
    given = json.dumps(INPUT)
    body = '{"id":"a",' + '"id":"b",' * 20_000 + f'"inputs":[{given}]}}'
    answer = server.post("/v2/models/same/infer", body.encode())
    assert (answer.status, answer.json()["id"]) == (200, "b")


@pytest.mark.parametrize("size", [20_000, 500_000, 5_000_000])
def test_large_ids_and_names(server: RunningServer, stub: Any, size: int) -> None:
    text = "x" * size
    answer = server.infer("slow", {"id": text, "inputs": [INPUT]})
    assert (answer.status, answer.json()["id"]) == (200, text)
    given = {"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    answer = server.infer("doubles", {"id": text, "inputs": [given]})
    assert answer.status == 400
    assert "characters" in answer.error
    assert len(answer.body) < 1000
    answer = server.infer("slow", {"inputs": [{**INPUT, "name": text}]})
    assert answer.status == 400
    answer = server.infer("slow", {"inputs": [INPUT], "outputs": [{"name": text}]})
    assert answer.status == 400
    answer = server.infer("slow", {"inputs": [{**INPUT, "datatype": text}]})
    assert answer.status == 400
    answer = server.infer("slow", {"inputs": [INPUT], "parameters": {text: text}})
    assert answer.status == 200
    if size < GRPC_LIMIT:
        request = service_pb2.ModelInferRequest(model_name=text)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=ANSWER_S)
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        request = service_pb2.ModelInferRequest(model_name="same", raw_input_contents=[bytes(4)])
        request.inputs.add(name=text, datatype="INT32").shape.append(1)
        with pytest.raises(grpc.RpcError) as caught:
            stub.ModelInfer(request, timeout=ANSWER_S)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
def test_descriptions_are_bounded(server: RunningServer) -> None:
    text = "x" * MAX_DESCRIPTION_BYTES
    bodies = ({"id": text, "inputs": [INPUT]}, {"parameters": {"a": text}, "inputs": [INPUT]})
    answers = [server.post("/v2/models/same/infer", body) for body in bodies]
    for way in ("generate", "generate_stream"):
        answers.append(server.post(f"/v2/models/same/{way}", {"INPUT0": 1, "a": text}))
    for answer in answers:
        assert answer.status == 400
        assert f"at most {MAX_DESCRIPTION_BYTES}" in answer.error
    # The data are no part of it.
    given = {"name": "INPUT0", "datatype": "INT32", "shape": [2**21], "parameters": {"binary_data_size": 2**23}}
    body = json.dumps({"id": text[: 2**23], "inputs": [given]}).encode()
    lines = (("Inference-Header-Content-Length", str(len(body))),)
    assert server.request("POST", "/v2/models/same/infer", body + bytes(2**23), headers=lines).status == 200


# Large JSON


@pytest.mark.parametrize("way", ["generate", "generate_stream"])
@pytest.mark.parametrize("count", [MANY_VALUES + 10, 400_000])
def test_large_json_to_generate(server: RunningServer, way: str, count: int) -> None:
    data = list(range(-7, count - 7))
    answer = server.post(f"/v2/models/slow/{way}", {"id": "7", "INPUT0": data, "parameters": {"p": 1, "q": "x"}})
    assert answer.status == 200, answer.body[:300]
    found = json.loads(answer.body if way == "generate" else answer.body.removeprefix(b"data: "))
    assert (found["OUTPUT0"], found["id"], found["model_name"]) == (data, "7", "slow")
    answer = server.post(f"/v2/models/slow/{way}", {"INPUT0": [*data, "x"]})
    assert answer.status == 400
    assert "takes integers" in answer.error
    body = json.dumps({"INPUT0": data}).encode()
    assert server.post(f"/v2/models/slow/{way}", body[:-1]).status == 400
    assert server.post(f"/v2/models/slow/{way}", body.replace(b"[", b"[[", 1).replace(b"]", b"]]")).status == 400
    assert server.post(f"/v2/models/none/{way}", body).status == 404
    assert server.post(f"/v2/models/slow/{way}", {"INPUT0": data, "triton_x": 1}).status == 400


@pytest.mark.slow
def test_a_caller_of_generate_that_leaves(server: RunningServer) -> None:
    body = json.dumps({"INPUT0": list(range(500_000))}).encode()
    for _ in range(3):
        peer = server.connect()
        peer.sendall(request_bytes("POST", "/v2/models/slow/generate", body))
        peer.shutdown(socket.SHUT_RDWR)
        peer.close()
