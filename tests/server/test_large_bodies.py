"""Bodies of requests above ``--http-max-input-size``: the tensors may be larger, all that has to be read may not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as httpclient

from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model

LIMIT, IN_FLIGHT = 100_000, 3_000_000
INFER = "/v2/models/m/infer"
OPTION = "Use --http-max-input-size to increase the limit."
JSON_TEXT = f"request JSON size of {{}} bytes exceeds the maximum allowed input size of {LIMIT} bytes. {OPTION}"
RAW_TEXT = (
    f"Raw input has a byte_size ({LIMIT + 1} bytes) that exceeds the maximum allowed value of {LIMIT} bytes. {OPTION}"
)
COMPRESSED = gzip.compress(b"x") * LIMIT
COMPRESSED_TEXT = (
    f"request body of {len(COMPRESSED)} bytes exceeds the maximum allowed input size of {LIMIT} bytes. {OPTION}"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("large")
    write_model(folder / "models", "m", identity("TYPE_UINT8"))
    limits = ("--http-max-input-size", LIMIT, "--max-in-flight-bytes", IN_FLIGHT)
    with serving(folder / "log", "--model-repository", folder / "models", *limits) as running:
        yield running


def described(size: int, **more: object) -> bytes:
    """The JSON part of a request with ``size`` bytes."""
    given = {"name": "INPUT0", "datatype": "UINT8", "shape": [size], "parameters": {"binary_data_size": size}}
    return json.dumps({**more, "inputs": [given]}).encode()


@pytest.mark.parametrize("size", [LIMIT, 10 * LIMIT])
def test_binary_tensors_may_be_larger(server: RunningServer, size: int) -> None:
    data = np.arange(size, dtype=np.uint8)
    given = httpclient.InferInput("INPUT0", [size], "UINT8")
    given.set_data_from_numpy(data)
    with httpclient.InferenceServerClient(server.url) as client:
        assert np.array_equal(client.infer("m", [given]).as_numpy("OUTPUT0"), data)


@pytest.mark.parametrize(
    ("path", "header_bytes", "encoding", "body", "text"),
    [
        pytest.param(INFER, None, "", b" " * (LIMIT + 1), JSON_TEXT.format(LIMIT + 1), id="JSON"),
        pytest.param(INFER, 0, "", b"x" * (LIMIT + 1), RAW_TEXT, id="raw"),
        pytest.param(INFER, LIMIT + 5, "", b" " * (LIMIT + 10), JSON_TEXT.format(LIMIT + 5), id="JSON part"),
        pytest.param(
            INFER, 9 * LIMIT, "", b" " * (LIMIT + 10), JSON_TEXT.format(LIMIT + 10), id="longer than its body"
        ),
        pytest.param(INFER, 80, "gzip", COMPRESSED, COMPRESSED_TEXT, id="compressed"),
        pytest.param("/v2/models/m/generate", 80, "", b"x" * (LIMIT + 1), JSON_TEXT.format(LIMIT + 1), id="generate"),
        pytest.param(INFER, 80, "", b"x" * (IN_FLIGHT + 1), "--max-in-flight-bytes", id="more than fits"),
    ],
)
def test_what_has_to_be_read_may_not(
    server: RunningServer, path: str, header_bytes: int | None, encoding: str, body: bytes, text: str
) -> None:
    headers = [] if header_bytes is None else [("Inference-Header-Content-Length", str(header_bytes))]
    headers += [("Content-Encoding", encoding)] if encoding else []
    answer = server.request("POST", path, body, headers)
    assert answer.status == 400
    assert text in answer.error


def test_a_large_body_that_is_not_what_its_json_says(server: RunningServer) -> None:
    header = described(LIMIT)
    headers = [("Inference-Header-Content-Length", str(len(header)))]
    answer = server.request("POST", INFER, header + b"x" * (2 * LIMIT), headers)
    assert answer.status == 400


def test_the_status_of_http_for_those_who_ask_for_it(tmp_path: Path) -> None:
    options = ("--http-max-input-size", 1000, "--http-standard-status", "true")
    with serving(tmp_path / "log", *options, "--model-repository", tmp_path) as running:
        answer = running.request("POST", INFER, b"x" * 1001)
        packed = running.request("POST", INFER, gzip.compress(b" " * 1001), [("Content-Encoding", "gzip")])
    assert (answer.status, packed.status) == (413, 413)
    assert "exceeds the maximum allowed input size of 1000 bytes" in answer.error
