"""Inference over HTTP, from the bytes of a request to those of its answer."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.frontends.http.v2.router import Router
from naiad.request import InferRequest, Outputs
from naiad.tensor.bytes_codec import encode_bytes
from naiad.tensor.dtypes import DATATYPES, DataType
from naiad.testing import write_model
from support.event_loops import run
from support.http_application import BINARY, JSON, TEXT, House, Peer, identity_config, play, serving, write_look_up
from support.played_model import PlayedModel

BATCHED = "max_batch_size: 8 dynamic_batching { }"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "floats", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more=BATCHED))
    write_model(
        tmp_path,
        "pair",
        identity_config(("0", "TYPE_INT32", "[ 2 ]"), ("1", "TYPE_STRING", "[ 1 ]"), more=BATCHED),
    )
    write_model(tmp_path, "whole", identity_config(("0", "TYPE_FP32", "[ 2, 3 ]")))
    write_model(tmp_path, "matrix", identity_config(("0", "TYPE_FP32", "[ -1, -1 ]")))
    write_model(tmp_path, "strings", identity_config(("0", "TYPE_STRING", "[ 2 ]")))
    write_model(tmp_path, "string", identity_config(("0", "TYPE_STRING", "[ 1 ]"), more=BATCHED))
    return tmp_path


def floats(*values: float, **more: Any) -> dict[str, Any]:
    """A JSON request to ``floats``."""
    given = {"name": "INPUT0", "shape": [1, len(values)], "datatype": "FP32", "data": values}
    return {**more, "inputs": [given]}


def binary(*shape: int, **more: Any) -> dict[str, Any]:
    """A binary request to ``floats``."""
    size = 4 * int(np.prod(shape))
    given = {"name": "INPUT0", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": size}}
    return {**more, "inputs": [given]}


WANTED = {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}


def raw(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


# JSON and binary, both ways


def test_json_both_ways(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer("floats", floats(1, 2.5, id="7"))
        assert (answer.status, answer.type) == (200, JSON)
        assert answer.body == (
            b'{"id":"7","model_name":"floats","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",'
            b'"shape":[1,2],"data":[1.0,2.5]}]}'
        )
        assert list(answer.headers) == ["Content-Type", "Content-Length"]

    play(repository, scenario)


def test_binary_both_ways(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(3):
            answer = await peer.infer("floats", binary(1, 2, **WANTED), raw(1, 2.5))
            assert (answer.status, answer.type) == (200, BINARY)
            assert answer.body[: answer.json_length] == (
                b'{"model_name":"floats","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",'
                b'"shape":[1,2],"parameters":{"binary_data_size":8}}]}'
            )
            assert answer.body[answer.json_length :] == raw(1, 2.5)

    play(repository, scenario)


@pytest.mark.parametrize(
    ("more", "is_binary"),
    [
        ({}, False),
        ({"parameters": {"binary_data_output": True}}, True),
        ({"parameters": {"binary_data_output": True}, "outputs": []}, True),
        ({"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}, True),
        ({"outputs": [{"name": "OUTPUT0"}]}, False),
    ],
)
@pytest.mark.parametrize("given_binary", [False, True])
def test_how_the_output_is_wanted(repository: Path, more: dict, is_binary: bool, given_binary: bool) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            if given_binary:
                answer = await peer.infer("floats", binary(1, 2, **more), raw(1, 2))
            else:
                answer = await peer.infer("floats", floats(1, 2, **more))
            assert answer.type == (BINARY if is_binary else JSON)
            assert answer.outputs()["OUTPUT0"].tolist() == [[1.0, 2.0]]

    play(repository, scenario)


def test_mixed_inputs_and_outputs(repository: Path) -> None:
    strings = encode_bytes(np.array([b"\xff\x00"], object))
    in_json = {"name": "INPUT0", "shape": [1, 2], "datatype": "INT32", "data": [[1, 2]]}
    in_binary = {"name": "INPUT1", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}
    wanted = [{"name": "OUTPUT1", "parameters": {"binary_data": True}}, {"name": "OUTPUT0"}]

    async def scenario(house: House, peer: Peer) -> None:
        for inputs in ([in_json, in_binary], [in_binary, in_json]):
            answer = await peer.infer("pair", {"inputs": inputs, "outputs": wanted}, strings)
            outputs = answer.outputs()
            assert list(outputs) == ["OUTPUT0", "OUTPUT1"], "the model's order, not that of the request"
            assert outputs["OUTPUT0"].tolist() == [[1, 2]]
            assert outputs["OUTPUT1"].tolist() == [[b"\xff\x00"]]
        answer = await peer.infer("pair", {"inputs": [in_json, in_binary]}, strings)
        assert (answer.status, answer.type) == (400, TEXT)
        assert "element 0 of output 'OUTPUT1' is not UTF-8" in answer.error

    play(repository, scenario)


def values_of(dtype: DataType) -> np.ndarray:
    if dtype.is_bytes:
        return np.array([[b"", "é".encode(), b"abc"]], object)
    return np.array([[0, 1, 1]]).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", DATATYPES, ids=lambda t: t.wire)
def test_every_datatype(tmp_path: Path, dtype: DataType) -> None:
    write_model(tmp_path, "m", identity_config(("0", dtype.config, "[ -1 ]"), more="max_batch_size: 4"))
    array = values_of(dtype)
    tensor = encode_bytes(array) if dtype.is_bytes else array.tobytes()
    given = {"name": "INPUT0", "shape": [1, 3], "datatype": dtype.wire}

    async def scenario(house: House, peer: Peer) -> None:
        sized = {**given, "parameters": {"binary_data_size": len(tensor)}}
        for _ in range(2):
            answer = await peer.infer("m", {"inputs": [sized], **WANTED}, tensor)
            found = answer.outputs()["OUTPUT0"]
            assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())
        data = [e.decode() for e in array.ravel()] if dtype.is_bytes else array.ravel().tolist()
        answer = await peer.infer("m", {"inputs": [{**given, "data": data}]})
        if dtype.in_json:
            assert answer.outputs()["OUTPUT0"].tolist() == array.tolist()
        else:
            assert answer.status == 400
            assert f"receiving {dtype.wire} data via JSON is not supported" in answer.error
            answer = await peer.infer("m", {"inputs": [sized]}, tensor)
            assert answer.status == 400
            assert f"sending {dtype.wire} data via JSON is not supported" in answer.error

    play(tmp_path, scenario)


def test_large_tensors(repository: Path) -> None:
    array = np.random.default_rng(1).random((4, 100_000), np.float32)

    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            answer = await peer.infer("floats", binary(4, 100_000, **WANTED), array.tobytes())
            assert answer.outputs()["OUTPUT0"].tobytes() == array.tobytes()

    play(repository, scenario)


def test_no_elements(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            answer = await peer.infer("floats", binary(2, 0, **WANTED), b"")
            assert answer.outputs()["OUTPUT0"].shape == (2, 0)
        answer = await peer.infer("matrix", {"inputs": [{**floats()["inputs"][0], "shape": [0, 5]}]})
        assert answer.json["outputs"][0]["shape"] == [0, 5]

    play(repository, scenario)


# Ids


@pytest.mark.parametrize(
    "request_id", ["", "7", "a b", "x" * 3000, 'a"b', "a\\b", "é", "\n", "\x7f", "\N{GRINNING FACE}", '","x":"']
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_any_id_comes_back(repository: Path, request_id: str, separators: tuple[str, str]) -> None:
    def texts(request: dict[str, Any]) -> list[bytes]:
        first = {"id": request_id, **request}
        last = {**request, "id": request_id}
        pairs = [(r, a) for r in (first, last) for a in (True, False)]
        return [json.dumps(r, separators=separators, ensure_ascii=a).encode() for r, a in pairs]

    async def scenario(house: House, peer: Peer) -> None:
        for text in texts(binary(1, 1, **WANTED)) * 2:
            answer = await peer.infer("floats", text, raw(5))
            assert answer.status == 200
            assert answer.json.get("id", "") == request_id
            assert answer.outputs()["OUTPUT0"].tolist() == [[5.0]]
        for text in texts(floats(5)):
            assert (await peer.infer("floats", text)).json.get("id", "") == request_id

    play(repository, scenario)


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        (b'{"id":"1","id":"%d"', "{}"),
        (b'{"id":"%d","id":"last"', "last"),
        (b'{"id":"%d","\\u0069d":"last"', "last"),
        (b'{"\\u0069d":"%d"', "{}"),
        (b'{"i\\u0064":"%d"', "{}"),
        (b'{"id":"%d","parameters":{"id":"custom"}', "{}"),
    ],
)
def test_of_an_id_given_twice_the_last_counts(repository: Path, opening: bytes, expected: str) -> None:
    """Every time, also when the request was seen before."""
    rest = b"," + json.dumps(binary(1, 1, **WANTED)).encode()[1:]

    async def scenario(house: House, peer: Peer) -> None:
        for n in (11, 22, 22, 33):
            answer = await peer.infer("floats", opening % n + rest, raw(n))
            assert answer.json["id"] == expected.format(n)
            assert answer.outputs()["OUTPUT0"].tolist() == [[float(n)]]

    play(repository, scenario)


# What was noted about a request serves the next


def test_the_second_request_is_as_the_first(repository: Path) -> None:
    """Two handlers get the same requests, one of them each request for the first time: the answers are the same."""
    requests: list[tuple[dict[str, Any], bytes]] = []
    for n in range(4):
        requests += [
            (binary(1, 2, **WANTED), raw(n, 1)),
            (binary(2, 1, **WANTED), raw(n, 2)),
            ({"id": f"{n}", **binary(1, 2, **WANTED)}, raw(n, 3)),
            ({"id": f'"{n}', **binary(1, 2, **WANTED)}, raw(n, 4)),
            ({**binary(1, 2), "id": f"{n}"}, raw(n, 5)),
            (binary(1, 2), raw(n, 6)),
            ({"id": "same", **binary(1, 3, parameters={"priority": 1, "x": "y"}, **WANTED)}, raw(n, 7, 8)),
            (binary(1, 2, **WANTED), raw(n, 9, 9)),
            (binary(1, 2, **WANTED), raw(n)),
            (binary(9, 1, **WANTED), raw(*range(9))),
        ]

    async def test() -> None:
        async with serving(repository) as house:
            with house.peer() as peer:
                for request, tensors in requests:
                    with house.peer(Router(house.engine)) as fresh:
                        expected = await fresh.infer("floats", request, tensors)
                    found = await peer.infer("floats", request, tensors)
                    assert (found.status, found.headers, found.body) == (
                        expected.status,
                        expected.headers,
                        expected.body,
                    )

    run(test())


def test_the_rest_of_a_noted_request_is_no_request(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        raw = np.float32([1]).tobytes()
        whole = json.dumps({"id": "a", **binary(1, 1)}, separators=(",", ":")).encode()
        rest = whole.removeprefix(b'{"id":"a"')
        for _ in range(3):
            assert (await peer.infer("floats", whole, raw)).status == 200
            answer = await peer.infer("floats", rest, raw)
            assert (answer.status, "parse" in answer.error) == (400, True)

    play(repository, scenario)


def test_a_noted_request_with_other_bytes_behind_it_is_checked_again(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        request = binary(1, 2, **WANTED)
        assert (await peer.infer("floats", request, raw(1, 2))).status == 200
        more = await peer.infer("floats", request, raw(1, 2, 3))
        assert more.error == "unexpected additional input data for model 'floats'"
        less = await peer.infer("floats", request, raw(1))
        assert less.error == ("unexpected size for input 'INPUT0', expecting 4 additional bytes for model 'floats'")
        assert (await peer.infer("floats", request, raw(3, 4))).outputs()["OUTPUT0"].tolist() == [[3.0, 4.0]]

    play(repository, scenario)


# Raw requests


RAW = {"Inference-Header-Content-Length": 0}


@pytest.mark.parametrize(
    ("model", "body", "headers", "expected"),
    [
        ("floats", raw(1, 2, 3), RAW, [[1.0, 2.0, 3.0]]),
        ("floats", raw(1, 2, 3), {"Inference-Header-Content-Length": "none"}, [[1.0, 2.0, 3.0]]),
        ("floats", b"", {}, [[]]),
        ("whole", raw(1, 2, 3, 4, 5, 6), RAW, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        ("string", b"any \xff bytes", RAW, [[b"any \xff bytes"]]),
        ("string", b"", {}, [[b""]]),
    ],
)
def test_raw_requests(repository: Path, model: str, body: bytes, headers: dict, expected: list) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            answer = await peer.ask("POST", f"/v2/models/{model}/infer", body, headers)
            assert (answer.status, answer.type) == (200, BINARY)
            assert answer.outputs()["OUTPUT0"].tolist() == expected

    play(repository, scenario)


@pytest.mark.parametrize(
    ("model", "body", "text"),
    [
        (
            "pair",
            b"x",
            "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in "
            "'pair' model configuration",
        ),
        (
            "matrix",
            raw(1),
            "[request id: <id_unknown>] The shape of the raw input 'INPUT0' can not be deduced because there are more "
            "than one variable-sized dimension",
        ),
        (
            "floats",
            b"abcde",
            "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'floats'. Expected 4, "
            "got 5",
        ),
        (
            "whole",
            raw(1),
            "[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'whole'. Expected 24, "
            "got 4",
        ),
        (
            "strings",
            b"abc",
            "[request id: <id_unknown>] For BYTE datatype raw input 'INPUT0', the model must have input shape [1]",
        ),
    ],
)
def test_raw_requests_that_do_not_fit(repository: Path, model: str, body: bytes, text: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.ask("POST", f"/v2/models/{model}/infer", body, RAW)
        assert (answer.status, answer.error) == (400, text)

    play(repository, scenario)


# Refusals


@pytest.mark.parametrize("length", [-5, -1, 100_000, 10**17])
def test_a_header_length_outside_the_body(repository: Path, length: int) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for body in (json.dumps(floats(1)).encode(), b""):
            answer = await peer.infer("floats", body, headers={"Inference-Header-Content-Length": length})
            assert answer.status == 400
            assert answer.error == f"inference header size should be in range (0, {len(body)}), got: {length}"

    play(repository, scenario)


@pytest.mark.parametrize(
    ("model", "request_", "tensors", "text"),
    [
        (
            "floats",
            binary(1, 2),
            None,
            "unexpected size for input 'INPUT0', expecting 8 additional bytes for model 'floats'",
        ),
        ("floats", binary(1, 2), raw(1, 2, 3), "unexpected additional input data for model 'floats'"),
        ("floats", floats(1), raw(1), "unexpected additional input data for model 'floats'"),
        (
            "floats",
            {"id": "7", "inputs": [{**binary(1, 2)["inputs"][0], "shape": [1, 3]}]},
            raw(1, 2),
            "[request id: 7] input byte size mismatch for input 'INPUT0' for model 'floats'. Expected 12, got 8",
        ),
        (
            "string",
            {
                "id": "7",
                "inputs": [
                    {"name": "INPUT0", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}
                ],
            },
            b"\5\0\0\0a",
            "[request id: 7] incomplete string data for inference input 'INPUT0' for model 'string', expecting string "
            "of length 5 but only 1 bytes available",
        ),
        (
            "floats",
            {**floats(1), "outputs": [{"name": "nope"}]},
            None,
            "unexpected inference output 'nope' for model 'floats'",
        ),
        ("floats", b"{", None, "failed to parse the request JSON buffer: "),
        (
            "matrix",
            {"inputs": [{**floats()["inputs"][0], "shape": [0, 2**62]}]},
            None,
            f"invalid shape for input 'INPUT0': shape [0,{2**62}] causes total element count to exceed maximum size",
        ),
        (
            "matrix",
            {"inputs": [{**floats()["inputs"][0], "shape": [4, 2**60]}]},
            None,
            f"byte size overflow for input 'INPUT0': element count ({2**62}) * data type size (4) exceeds maximum "
            f"allowed size ({2**63 - 1})",
        ),
        (
            "floats",
            {"inputs": [{**floats(1)["inputs"][0], "data": [{"a": 1}]}]},
            None,
            "Unable to parse 'data' of input 'INPUT0': FP32 takes numbers, found an object at element 0 (attempt "
            "to access JSON non-number as number)",
        ),
    ],
)
def test_bad_requests(repository: Path, model: str, request_: Any, tensors: bytes | None, text: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer(model, request_, tensors)
        assert (answer.status, answer.type) == (400, JSON)
        assert answer.error.startswith(text)

    play(repository, scenario)


def test_unknown_models_and_versions(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for model, text in [
            ("nope", "Request for unknown model: 'nope' is not found"),
            ("floats/versions/9", "Request for unknown model: 'floats' version 9 is not found"),
        ]:
            answer = await peer.infer(model, floats(1))
            assert (answer.status, answer.type, answer.error) == (404, TEXT, text)
        answer = await peer.infer("floats/versions/" + "9" * 30, floats(1))
        assert answer.status == 400
        assert "failed to get model version from specified version string" in answer.error
        assert (await peer.infer("floats/versions/1", floats(1))).status == 200

    play(repository, scenario)


def test_a_stopping_model_says_so(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        house.engine.find("floats", None).stop_accepting()
        answer = await peer.infer("floats", floats(1))
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "1"
        assert "has stopped accepting new inference requests" in answer.error

    play(repository, scenario)


def test_a_model_that_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_look_up(tmp_path)

    def index(value: int) -> dict[str, Any]:
        given = {"name": "index", "shape": [1, 1], "datatype": "INT64", "data": [value]}
        return {"id": f"i{value}", "inputs": [given]}

    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer("look_up", index(99))
        assert (answer.status, answer.type) == (500, TEXT)
        assert "indices element out of data bounds" in answer.error
        assert (await peer.infer("look_up", index(2))).outputs()["value"].tolist() == [[12.0]]
        statistics = house.engine.statistics("look_up", None)["model_stats"][0]
        assert statistics["inference_stats"]["fail"]["count"] == 1
        assert statistics["inference_stats"]["success"]["count"] == 1

    with caplog.at_level(logging.WARNING):
        play(tmp_path, scenario)
    assert "[request id: i99] failed for model 'look_up'" in caplog.text


def test_outputs_of_optional_inputs_that_were_not_given_are_zeros(tmp_path: Path) -> None:
    tensors = 'name: "%s" data_type: TYPE_FP32 dims: [ -1 ]'
    inputs = ", ".join(f"{{ {tensors % name} optional: true }}" for name in ("A", "B"))
    outputs = ", ".join(f"{{ {tensors % name} }}" for name in ("X", "Y"))
    write_model(tmp_path, "two", f'backend: "identity" max_batch_size: 4 input [ {inputs} ] output [ {outputs} ]')
    given = {"name": "B", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}

    async def scenario(house: House, peer: Peer) -> None:
        for binary in (False, True):
            answer = await peer.infer("two", {"inputs": [given], "parameters": {"binary_data_output": binary}})
            assert answer.status == 200
            outputs = answer.outputs()
            assert list(outputs) == ["X", "Y"]
            assert not np.any(outputs["X"])
        # Twice: equal requests take another way.
        for _ in range(2):
            answer = await peer.infer("two", {"inputs": [], "outputs": [{"name": "Y"}]})
            assert (answer.status, list(answer.outputs())) == (200, ["Y"])

    play(tmp_path, scenario)


# What Python models say and are told


def test_parameters_of_a_response_stand_behind_the_version(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = PlayedModel(house, "floats")

        def answer(request: InferRequest) -> None:
            request.respond(Outputs({"OUTPUT0": request.inputs["INPUT0"]}, {"s": "text", "i": 7, "b": True}), None)

        model.model.submit = answer
        found = await peer.infer("floats", floats(1, id="q"))
        assert found.body == (
            b'{"id":"q","model_name":"floats","model_version":"1","parameters":{"s":"text","i":7,"b":true},'
            b'"outputs":[{"name":"OUTPUT0","datatype":"FP32","shape":[1,1],"data":[1.0]}]}'
        )
        for _ in range(2):
            found = await peer.infer("floats", binary(1, 1, **WANTED), np.float32(2).tobytes())
            assert found.json["parameters"] == {"s": "text", "i": 7, "b": True}
            assert found.outputs()["OUTPUT0"].tolist() == [[2.0]]

    play(repository, scenario)


def test_a_parameter_that_cannot_be_sent_is_an_error(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = PlayedModel(house, "floats")
        model.model.submit = lambda request: request.respond(Outputs({}, {"big": 2**70}), None)
        found = await peer.infer("floats", floats(1))
        assert found.status == 500
        assert "the parameter 'big'" in found.error

    play(repository, scenario)


@pytest.mark.parametrize("in_json", [False, True])
def test_an_output_has_the_datatype_that_it_really_is_of(repository: Path, in_json: bool) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = PlayedModel(house, "floats")
        arrays = iter([np.array([[1.5]]), np.array([[2, 3]], np.int64), np.array([[4]], np.float32)])
        model.model.submit = lambda request: request.respond(Outputs({"OUTPUT0": next(arrays)}), None)
        for wire, values in (("FP64", [[1.5]]), ("INT64", [[2, 3]]), ("FP32", [[4.0]])):
            wanted = {} if in_json else WANTED
            found = await peer.infer("floats", binary(1, 1, **wanted), bytes(4))
            assert found.json["outputs"][0]["datatype"] == wire
            assert found.outputs()["OUTPUT0"].tolist() == values

    play(repository, scenario)


def test_a_decoupled_model_is_refused(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = PlayedModel(house, "floats", decoupled=True)
        for _ in range(2):
            for found in (
                await peer.infer("floats", floats(1)),
                await peer.infer("floats", binary(1, 1), bytes(4)),
                await peer.infer("floats", b"{"),
            ):
                assert (found.status, found.type) == (501, TEXT)
                assert found.error == "HTTP end point doesn't support models with decoupled transaction policy"
        assert model.requests == []

    play(repository, scenario)


def test_what_a_request_says_reaches_the_model(repository: Path) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        model = PlayedModel(house, "floats")
        said: list[dict[str, Any]] = [
            {"sequence_id": "abc", "sequence_start": True, "own": 1.5},
            {"sequence_id": 7, "sequence_end": True, "timeout": 5000000, "priority": 3},
            {"sequence_id": 7, "sequence_start": True, "sequence_end": True},
            {},
        ]
        options = []

        def answer(request: InferRequest) -> None:
            options.append(request.options)
            request.respond({"OUTPUT0": request.inputs["INPUT0"]}, None)

        model.model.submit = answer
        for parameters in said:
            await peer.infer("floats", floats(1, parameters=parameters))
            await peer.infer("floats", binary(1, 1, parameters=parameters), bytes(4))
        assert [(t.correlation_id, t.flags) for t in options[::2]] == [("abc", 1), (7, 2), (7, 3), (0, 0)]
        assert [(t.correlation_id, t.flags) for t in options[1::2]] == [("abc", 1), (7, 2), (7, 3), (0, 0)]
        assert [dict(t.parameters) for t in options[::2]] == [{"own": 1.5}, {}, {}, {}]
        assert (options[2].timeout_us, options[2].priority) == (5000000, 3)

    play(repository, scenario)
