"""Tensors as base64 text in JSON, from the bytes of a request to those of its response."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.frontends.http.json_worker.pool import LARGE_JSON_BYTES
from naiad.tensor.bytes_codec import encode_bytes
from naiad.tensor.dtypes import DATATYPES, DataType
from naiad.testing import write_model
from support.http_application import BINARY, JSON, House, Peer, identity_config, play

ENCODED = {"parameters": {"binary_data_encoding": "base64"}}
BATCHED = "max_batch_size: 8 dynamic_batching { }"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "floats", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more=BATCHED))
    write_model(tmp_path, "strings", identity_config(("0", "TYPE_STRING", "[ -1 ]"), more=BATCHED))
    write_model(tmp_path, "pair", identity_config(("0", "TYPE_FP16", "[ 2 ]"), ("1", "TYPE_STRING", "[ 1 ]")))
    return tmp_path


def text_of(raw: bytes | memoryview) -> str:
    return base64.b64encode(raw).decode()


def floats(data: Any, *shape: int, **more: Any) -> dict[str, Any]:
    return {"name": "INPUT0", "datatype": "FP32", "shape": shape, "data": data, **more}


def raw(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


NUMBERS = floats({"b64": text_of(raw(1, 2.5))}, 1, 2)


@pytest.mark.parametrize(
    "given",
    [
        NUMBERS,
        floats(text_of(raw(1, 2.5)), 1, 2, **ENCODED),
        floats({"b64": text_of(raw(1, 2.5))}, 1, 2, **ENCODED),
    ],
)
def test_two_forms_of_one_input(repository: Path, given: dict[str, Any]) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            answer = await peer.infer("floats", {"id": "7", "inputs": [given]})
            assert (answer.status, answer.type) == (200, JSON)
            assert answer.json["outputs"][0]["data"] == [1.0, 2.5]

    play(repository, scenario)


@pytest.mark.parametrize(
    "more",
    [
        ENCODED,
        {**ENCODED, "outputs": []},
        {**ENCODED, "outputs": [{"name": "OUTPUT0"}]},
        {**ENCODED, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": False}}]},
        {"outputs": [{"name": "OUTPUT0", **ENCODED}]},
        {"parameters": {"binary_data_output": True}, "outputs": [{"name": "OUTPUT0", **ENCODED}]},
    ],
)
@pytest.mark.parametrize("data", [{"b64": text_of(raw(1, 2.5))}, [1, 2.5]])
def test_outputs_as_text(repository: Path, more: dict[str, Any], data: Any) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for number in ("7", "8"):
            answer = await peer.infer("floats", {"id": number, "inputs": [floats(data, 1, 2)], **more})
            assert (answer.status, answer.type) == (200, JSON)
            assert answer.body == (
                b'{"id":"%s","model_name":"floats","model_version":"1","outputs":[{"name":"OUTPUT0","datatype":"FP32",'
                b'"shape":[1,2],"data":{"b64":"%s"}}]}' % (number.encode(), text_of(raw(1, 2.5)).encode())
            )
            # An output of a response can be an input as it is.
            output = {**answer.json["outputs"][0], "name": "INPUT0"}
            assert (await peer.infer("floats", {"inputs": [output]})).json["outputs"][0]["data"] == [1.0, 2.5]

    play(repository, scenario)


def test_an_output_may_be_binary_where_the_others_are_text(repository: Path) -> None:
    given = [
        {"name": "INPUT0", "datatype": "FP16", "shape": [2], "data": {"b64": text_of(np.float16([1, 2]).tobytes())}},
        {"name": "INPUT1", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 6}},
    ]
    wanted = [{"name": "OUTPUT0"}, {"name": "OUTPUT1", "parameters": {"binary_data": True}}]

    async def scenario(house: House, peer: Peer) -> None:
        for _ in range(2):
            answer = await peer.infer("pair", {"inputs": given, "outputs": wanted, **ENCODED}, b"\2\0\0\0\xff\0")
            assert (answer.status, answer.type) == (200, BINARY)
            assert [list(output)[-1] for output in answer.json["outputs"]] == ["data", "parameters"]
            found = answer.outputs()
            assert found["OUTPUT0"].tolist() == [1.0, 2.0]
            assert found["OUTPUT1"].tolist() == [b"\xff\0"]

    play(repository, scenario)


@pytest.mark.parametrize("dtype", DATATYPES, ids=lambda dtype: dtype.wire)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_datatype(tmp_path: Path, dtype: DataType, count: int) -> None:
    write_model(tmp_path, "same", identity_config(("0", dtype.config, "[ -1 ]")))
    if dtype.is_bytes:
        raw = bytes(encode_bytes(np.array([b"\xff" * n for n in range(count)], np.object_)))
    else:
        raw = np.arange(count).astype(dtype.numpy).tobytes()
    given = {"name": "INPUT0", "datatype": dtype.wire, "shape": [count], "data": {"b64": text_of(raw)}}

    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer("same", {"inputs": [given], **ENCODED})
        (output,) = answer.json["outputs"]
        assert output == {"name": "OUTPUT0", "datatype": dtype.wire, "shape": [count], "data": {"b64": text_of(raw)}}

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    ("given", "more", "text"),
    [
        (floats({"b64": "AAAA*AA="}, 1, 1), {}, "data' of input 'INPUT0': the base64 text has '*' at character 4"),
        (floats({"b64": text_of(raw(1))}, 1, 2), {}, "data' of input 'INPUT0': shape [1,2] of FP32 has 8 bytes"),
        (floats({"b64": 5}, 1, 1), {}, "data' of input 'INPUT0': expected base64 text, found the number 5"),
        (floats({"b64": ["AAAA"]}, 1, 1), {}, "data' of input 'INPUT0': expected base64 text, found an array"),
        (floats({"b64": "AAAA", "x": 1}, 1, 1), {}, "expected the member 'b64' alone, found 2 members"),
        (floats([1], 1, 1, **ENCODED), {}, "data' of input 'INPUT0': expected base64 text, found an array"),
        (floats("AAAAAA==", 1, 1), {}, "found the string 'AAAAAA=='; base64 text needs the parameter"),
        # The parameter of the request says what the caller wants, not what it sends.
        (floats("AAAAAA==", 1, 1), ENCODED, "expected an array, found the string 'AAAAAA=='; base64 text needs"),
        (
            {**NUMBERS, "parameters": {"binary_data_encoding": "hex"}},
            {},
            "parameter 'binary_data_encoding' of input 'INPUT0': expected 'base64', found the string 'hex'",
        ),
        ({**NUMBERS, "parameters": {"binary_data_size": 8}}, {}, "must set only one of the following fields"),
        (
            {"name": "INPUT0", "datatype": "FP32", "shape": [1, 1],
             "parameters": {"binary_data_size": 0, "binary_data_encoding": "base64"}},
            {},
            "input 'INPUT0' sets 'binary_data_encoding', expected its base64 text in 'data'",
        ),
        (NUMBERS, {"parameters": {"binary_data_encoding": True}}, "of the request: expected 'base64', found true"),
        (
            NUMBERS,
            {"parameters": {"binary_data_encoding": "base64", "binary_data_output": True}},
            "the request can't set both 'binary_data_output' and 'binary_data_encoding'",
        ),
        (
            NUMBERS,
            {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data_encoding": "base64", "binary_data": True}}]},
            "Output can't set both 'binary_data' and 'binary_data_encoding'",
        ),
        (
            NUMBERS,
            {"outputs": [{"name": "OUTPUT0", "parameters": {
                "binary_data_encoding": "base64", "shared_memory_region": "r", "shared_memory_byte_size": 8}}]},
            "Output can't set both 'shared_memory_region' and 'binary_data_encoding'",
        ),
        (
            NUMBERS,
            {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data_encoding": None}}]},
            "parameter 'binary_data_encoding' of output 'OUTPUT0': expected 'base64', found null",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_400_and_say_where(repository: Path, given: dict, more: dict, text: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        # As small JSON on the event loop, and as large JSON in its worker.
        for padding in ("", " " * LARGE_JSON_BYTES):
            body = json.dumps({"inputs": [given], **more}).encode() + padding.encode()
            answer = await peer.ask("POST", "/v2/models/floats/infer", body)
            assert answer.status == 400
            assert text in answer.error
            assert (await peer.infer("floats", {"inputs": [NUMBERS]})).status == 200

    play(repository, scenario)


@pytest.mark.parametrize("strings", [b"", b"\1\0\0\0", b"\1\0\0\0a\1\0\0\0", b"\xff\xff\xff\xffa", b"\1\0\0\0a" * 3])
def test_strings_are_as_many_as_the_shape_says(repository: Path, strings: bytes) -> None:
    given = {"name": "INPUT0", "datatype": "BYTES", "shape": [1, 2], "data": {"b64": text_of(strings)}}

    async def scenario(house: House, peer: Peer) -> None:
        for padding in ("", " " * LARGE_JSON_BYTES):
            body = json.dumps({"inputs": [given]}).encode() + padding.encode()
            answer = await peer.ask("POST", "/v2/models/strings/infer", body)
            assert answer.status == 400
            assert "INPUT0" in answer.error

    play(repository, scenario)


def test_classes_are_strings_with_their_lengths(repository: Path) -> None:
    wanted = {"name": "OUTPUT0", "parameters": {"classification": 2, "binary_data_encoding": "base64"}}

    async def scenario(house: House, peer: Peer) -> None:
        answer = await peer.infer("floats", {"inputs": [floats([0.5, 2, 1], 1, 3)], "outputs": [wanted]})
        assert answer.json["outputs"][0]["datatype"] == "BYTES"
        assert answer.outputs()["OUTPUT0"].tolist() == [[b"2.000000:1", b"1.000000:2"]]

    play(repository, scenario)


@pytest.mark.parametrize("count", [100_000, 1_000_000])
def test_large_tensors_both_ways(repository: Path, count: int) -> None:
    values = np.arange(count, dtype=np.float32).tobytes()
    strings = bytes(encode_bytes(np.array([b"\xff%d" % n for n in range(count // 4)], np.object_)))

    async def scenario(house: House, peer: Peer) -> None:
        for model, datatype, shape, raw, wanted in (
            ("floats", "FP32", [1, count], values, ENCODED),
            ("strings", "BYTES", [1, count // 4], strings, {"outputs": [{"name": "OUTPUT0", **ENCODED}]}),
        ):
            text = text_of(raw)
            given = {"name": "INPUT0", "datatype": datatype, "shape": shape, "data": {"b64": text}}
            answer = await peer.infer(model, {"inputs": [given], **wanted})
            assert answer.status == 200
            (output,) = answer.json["outputs"]
            assert (output["shape"], output["data"]) == (shape, {"b64": text})

    play(repository, scenario)
