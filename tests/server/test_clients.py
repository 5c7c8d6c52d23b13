"""What the official client and a plain HTTP client get from a whole server."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving
from support.served_models import SUM_AND_DIFFERENCE, identity, tensor, write_model
from support.triton_inputs import input_of

VALUES: dict[str, np.ndarray] = {
    "BOOL": np.array([[True, False, True]]),
    **{
        f"{sign}INT{bits}": np.array(
            [[np.iinfo(f"{sign.lower()}int{bits}").min, 1, np.iinfo(f"{sign.lower()}int{bits}").max]],
            dtype=f"{sign.lower()}int{bits}",
        )
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
    "FP16": np.array([[1.5, -0.0, 65504.0]], np.float16),
    "BF16": np.array([[1.5, -2.25, 3e38]], ml_dtypes.bfloat16),
    "FP32": np.array([[0.1, -1.5, 3.4e38]], np.float32),
    "FP64": np.array([[0.1, -1.5, 1.7e308]], np.float64),
    "BYTES": np.array([[b"a", 'ümlaut " \\ \n'.encode(), b""]], np.object_),
}
NOT_IN_JSON = {"FP16", "BF16"}


def config_type(datatype: str) -> str:
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def write_models(repository: Path) -> None:
    for datatype in VALUES:
        write_model(repository, f"id_{datatype}", identity(config_type(datatype), "-1", max_batch_size=4))
    write_model(repository, "sum", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    write_model(repository, "versions", "version_policy { all { } }\n" + identity(), versions=(1, 7))
    write_model(repository, "raw", identity("TYPE_FP32", "2, -1"))
    write_model(
        repository,
        "two",
        f"""backend: "identity"
        input [ {tensor("A", "TYPE_FP32", "2")}, {tensor("B", "TYPE_STRING", "-1")} ]
        output [ {tensor("X", "TYPE_FP32", "2")}, {tensor("Y", "TYPE_STRING", "-1")} ]""",
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("clients")
    write_models(folder / "models")
    with serving(folder / "log", "--model-repository", folder / "models", "--id", "nymph") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url) as found:
        yield found


WAYS = [
    pytest.param(datatype, binary_in, binary_out, id=f"{datatype} {in_text} in {out_text} out")
    for datatype in VALUES
    for in_text, binary_in in (("binary", True), ("JSON", False))
    for out_text, binary_out in (("binary", True), ("JSON", False))
    if datatype not in NOT_IN_JSON or (binary_in and binary_out)
]


@pytest.mark.parametrize(("datatype", "binary_in", "binary_out"), WAYS)
def test_every_datatype_comes_back(client: Any, datatype: str, binary_in: bool, binary_out: bool) -> None:
    values = VALUES[datatype]
    wanted = triton.InferRequestedOutput("OUTPUT0", binary_data=binary_out)
    answer = client.infer(
        f"id_{datatype}",
        [input_of(triton, "INPUT0", values, datatype, binary_data=binary_in)],
        outputs=[wanted],
        request_id="7",
    )
    found = answer.as_numpy("OUTPUT0")
    described = answer.get_response()
    assert (described["id"], described["model_name"], described["model_version"]) == ("7", f"id_{datatype}", "1")
    assert described["outputs"][0]["datatype"] == datatype
    if datatype == "BYTES" and not binary_out:
        found = np.array([[text.encode() if isinstance(text, str) else text for text in found[0]]], np.object_)
    assert found.shape == values.shape
    assert found.tolist() == values.tolist()


@pytest.mark.parametrize("datatype", sorted(NOT_IN_JSON))
def test_half_precision_is_refused_in_json(server: RunningServer, datatype: str) -> None:
    one = {"name": "INPUT0", "datatype": datatype, "shape": [1, 1], "data": [1.0]}
    answer = server.infer(f"id_{datatype}", {"inputs": [one]})
    assert answer.status == 400
    assert f"receiving {datatype} data via JSON is not supported" in answer.error


def test_fp32_is_printed_shortest(server: RunningServer) -> None:
    one = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [0.1, 1]}
    answer = server.infer("id_FP32", {"inputs": [one]})
    assert answer.body.endswith(b'"data":[0.1,1.0]}]}')


def test_batches_of_a_request_keep_their_order(client: Any) -> None:
    first = np.arange(128, dtype=np.int32).reshape(8, 16)
    second = np.full((8, 16), 3, np.int32)
    answer = client.infer(
        "sum",
        [input_of(triton, "INPUT0", first, "INT32"), input_of(triton, "INPUT1", second, "INT32", binary_data=False)],
    )
    assert np.array_equal(answer.as_numpy("OUTPUT0"), first + second)
    assert np.array_equal(answer.as_numpy("OUTPUT1"), first - second)


def test_more_than_the_batch_size_is_refused(client: Any) -> None:
    much = np.zeros((9, 16), np.int32)
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8"):
        client.infer("sum", [input_of(triton, "INPUT0", much, "INT32"), input_of(triton, "INPUT1", much, "INT32")])


def test_binary_and_json_tensors_in_one_request(client: Any) -> None:
    numbers, words = np.array([1.5, 2.5], np.float32), np.array([b"x", b"\xff\x00"], np.object_)
    outputs = [triton.InferRequestedOutput("Y"), triton.InferRequestedOutput("X", binary_data=False)]
    answer = client.infer(
        "two",
        [input_of(triton, "B", words, "BYTES"), input_of(triton, "A", numbers, "FP32", binary_data=False)],
        outputs=outputs,
    )
    assert answer.as_numpy("X").tolist() == [1.5, 2.5]
    assert answer.as_numpy("Y").tolist() == [b"x", b"\xff\x00"]
    assert [o["name"] for o in answer.get_response()["outputs"]] == ["X", "Y"]


@pytest.mark.slow
def test_many_requests_at_once(server: RunningServer) -> None:
    with triton.InferenceServerClient(server.url, concurrency=8) as client:
        pending = []
        for i in range(64):
            values = np.full((1, 16), i, np.int32)
            inputs = [input_of(triton, "INPUT0", values, "INT32"), input_of(triton, "INPUT1", values, "INT32")]
            pending.append(client.async_infer("sum", inputs, request_id=str(i)))
        for i, request in enumerate(pending):
            answer = request.get_result(timeout=20)
            assert answer.get_response()["id"] == str(i)
            assert answer.as_numpy("OUTPUT0").tolist() == [[2 * i] * 16]


def test_descriptions(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["name"] == "nymph"
    assert client.is_model_ready("sum")
    assert not client.is_model_ready("nothing")
    assert client.get_model_metadata("versions")["versions"] == ["1", "7"]
    assert client.get_model_metadata("sum")["inputs"][0] == {"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}
    assert client.get_model_config("sum")["max_batch_size"] == 8
    index = {(m["name"], m["version"]): m["state"] for m in client.get_model_repository_index()}
    assert index["versions", "7"] == "READY"
    assert len(index) == len(VALUES) + 5


def test_versions_are_told_apart(client: Any, server: RunningServer) -> None:
    values = np.array([5], np.int32)
    for version, found in (("", "7"), ("1", "1"), ("7", "7")):
        answer = client.infer("versions", [input_of(triton, "INPUT0", values, "INT32")], model_version=version)
        assert answer.get_response()["model_version"] == found
    with pytest.raises(InferenceServerException, match="version 2 is not found"):
        client.infer("versions", [input_of(triton, "INPUT0", values, "INT32")], model_version="2")
    stats = {m["version"]: m["inference_count"] for m in client.get_inference_statistics("versions")["model_stats"]}
    assert stats == {"1": 1, "7": 2}


def test_a_raw_body_is_the_one_input(server: RunningServer) -> None:
    values = np.arange(6, dtype=np.float32)
    request = urllib.request.Request(
        f"http://{server.url}/v2/models/raw/infer",
        data=values.tobytes(),
        headers={"Inference-Header-Content-Length": "0"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        size = int(answer.headers["Inference-Header-Content-Length"])
        body = answer.read()
    assert b'"shape":[2,3]' in body[:size]
    assert body[size:] == values.tobytes()


def test_a_raw_body_that_does_not_fit_is_refused(server: RunningServer) -> None:
    answer = server.request("POST", "/v2/models/raw/infer", b"12345", [("Inference-Header-Content-Length", "0")])
    assert answer.status == 400
    assert "input byte size mismatch for input 'raw_input' for model 'raw'. Expected 0, got 5" in answer.error
