"""TensorFlow Serving over REST: rows and columns, signatures, versions and labels, against a server of that API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from naiad.perf.input.error import PerfInputError
from naiad.perf.results import Window
from naiad.perf.target.protocol import TargetError
from support.perf_runs import measure, measure_level, run_command
from support.tfserving_peer import tfserving_peer

MODEL = ("-m", "half_plus_three", "--service-kind", "tfserving")
COUNT = 6


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tfserving_peer() as address:
        yield address


def window_of(address: str, *words: object) -> Window:
    return measure_level(*MODEL, "-u", address, "--request-count", COUNT, *words).merged


def seen(address: str) -> list[dict[str, Any]]:
    """The requests of the last run that the server has answered."""
    with urlopen(f"http://{address}/seen") as response:
        found: list[dict[str, Any]] = json.load(response)
    return found[-COUNT - 1 :]


def data(folder: Path, steps: list[Any], expected: list[Any] | None = None) -> Path:
    file = folder / "data.json"
    file.write_text(json.dumps({"data": steps} | ({} if expected is None else {"validation_data": expected})))
    return file


def signature(name: str) -> tuple[str, str]:
    return "--model-signature-name", name


def test_rows_of_the_only_input(server: str) -> None:
    window = window_of(server, "-b", 3, "--concurrency-range", 2)
    assert (window.requests, window.errors) == (COUNT, {})
    (path,) = {request["path"] for request in seen(server)}
    assert path == "/v1/models/half_plus_three:predict"
    body = seen(server)[0]["body"]
    assert body.keys() == {"signature_name", "instances"}
    assert body["signature_name"] == "serving_default"
    assert [type(value) for value in body["instances"]] == [float] * 3


def test_rows_of_several_inputs_are_objects(server: str, tmp_path: Path) -> None:
    file = data(
        tmp_path,
        [{"a": [1, 2.5], "b": [1, 2, 3]}, {"a": [0.1, 0], "b": [0, 0, 0]}],
        [{"sum": [9.5], "text": ["9.5"]}, {"sum": [0.1], "text": ["0.1"]}],
    )
    window = window_of(server, *signature("pair"), "-b", 2, "--input-data", file)
    assert (window.requests, window.errors) == (COUNT, {})
    assert seen(server)[0]["body"]["instances"] == [{"a": [1, 2.5], "b": [1, 2, 3]}, {"a": [0.1, 0], "b": [0, 0, 0]}]


def test_columns_on_request(server: str, tmp_path: Path) -> None:
    file = data(tmp_path, [{"a": [1, 2.5], "b": [1, 2, 3]}], [{"sum": [9.5], "text": ["9.5"]}])
    window = window_of(server, *signature("pair"), "--tfserving-format", "column", "--input-data", file)
    assert (window.requests, window.errors) == (COUNT, {})
    assert seen(server)[0]["body"]["inputs"] == {"a": [[1, 2.5]], "b": [[1, 2, 3]]}


@pytest.mark.parametrize(
    ("words", "inputs"),
    [
        ((*signature("fixed"), "--input-data", "zero"), {"x": [[0, 0], [0, 0]]}),
        # A whole shape is no batch.
        (("--shape", "x:2", "--input-data", "zero"), {"x": [0, 0]}),
        ((*signature("any"), "--shape", "x:1,2", "--input-data", "zero"), {"x": [[False, False]]}),
    ],
)
def test_without_a_batch_dimension_there_are_columns(
    server: str, words: tuple[str, ...], inputs: dict[str, Any]
) -> None:
    assert window_of(server, *words).errors == {}
    assert seen(server)[0]["body"]["inputs"] == inputs


def test_strings_that_are_no_text_are_base64(server: str, tmp_path: Path) -> None:
    raw = "BAAAAHRleHQCAAAA//4="  # b"text" and b"\xff\xfe", each behind its length
    file = data(tmp_path, [{"raw": {"b64": raw}}], [{"raw_bytes": {"b64": raw}}])
    assert window_of(server, *signature("echo"), "--input-data", file).errors == {}
    assert seen(server)[0]["body"]["instances"] == [["text", {"b64": "//4="}]]


def test_numbers_that_are_no_json(server: str, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"data": [{"x": [NaN]}]}')
    assert window_of(server, "--input-data", tmp_path / "data.json").errors == {}
    assert "nan" in str(seen(server)[0]["body"]["instances"])


def test_a_wrong_answer_says_where(server: str, tmp_path: Path) -> None:
    file = data(tmp_path, [{"x": [1]}], [{"y": [4]}])
    with pytest.raises(TargetError, match=r"wrong output: 'y' has other values than expected: element \[0\] is 3.5"):
        window_of(server, "--input-data", file)


@pytest.mark.parametrize(("version", "path"), [("123", "versions/123"), ("stable", "labels/stable")])
def test_versions_and_labels(server: str, version: str, path: str) -> None:
    assert window_of(server, "-x", version).requests == COUNT
    assert seen(server)[0]["path"] == f"/v1/models/half_plus_three/{path}:predict"


def test_metadata_of_other_spelling() -> None:
    with tfserving_peer("camel") as address:
        assert window_of(address, *signature("pair"), "-b", 2).errors == {}


def test_failures_have_the_words_of_the_server() -> None:
    with tfserving_peer(fail_after=4) as address:
        window = window_of(address)
    assert (window.requests, window.errors) == (3, {("HTTP 503", "the model is being unloaded"): 3})


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        (("-m", "other"), TargetError, "'other' at .* HTTP 404: Servable not found"),
        (("-x", "5"), TargetError, "HTTP 404: Servable not found"),
        (
            signature("nope"),
            TargetError,
            'Failed to find signature_name "nope" in the metadata: found any, .*choose one with --model-signature-name',
        ),
        ((*signature("fixed"), "-b", 2), TargetError, "Can not specify -b flag for saved model with input not having"),
        (
            (*signature("any"), "-b", 2),
            TargetError,
            "Can not specify -b flag for saved model with unknown ranked inputs",
        ),
        (
            signature("any"),
            TargetError,
            "'x' has an unknown number of dimensions: give its shape with --shape x:<dims>",
        ),
        ((*signature("fixed"), "--tfserving-format", "row"), TargetError, "row needs a first dimension that is -1"),
        (signature("odd"), PerfInputError, "tensor 'x' has the datatype 'DT_QINT8', expected one of"),
    ],
)
def test_what_cannot_be_measured(server: str, words: tuple[object, ...], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        measure(*MODEL, "-u", server, *words)


@pytest.mark.slow
def test_an_open_loop_and_the_report(server: str) -> None:
    words = (*MODEL, "-u", server, "--request-rate-range", 50, "--request-count", 50)
    code, out, errors = run_command(*words)
    assert (code, errors) == (0, "")
    for text in ("Service Kind: TENSORFLOW_SERVING", "Request Rate: 50, throughput: "):
        assert text in out
