"""Responses are compared with the outputs that the data of the user say, on a real server."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.perf.input.element_bytes import encode_bytes_elements
from naiad.perf.results import LevelResult
from naiad.perf.run import run_perf
from naiad.perf.settings import InputSettings, MeasureSettings, PerfSettings, TargetSettings
from naiad.perf.target.protocol import TargetError
from naiad.tensor.dtypes import DATATYPES, DataType
from naiad.testing import RunningServer, serving
from support import served_models
from support.perf_models import IDENTITIES, write_identities

WAYS: dict[str, dict[str, Any]] = {
    "http": {},
    "http-json": {"input_format": "json", "output_format": "json"},
    "http-json-input": {"input_format": "json"},
    "grpc": {"protocol": "grpc"},
    "grpc-stream": {"protocol": "grpc", "streaming": True},
}
TRIPLES = {t.wire: t for t in DATATYPES}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("identities")
    write_identities(folder)
    served_models.write_model(folder, "matrix", served_models.identity("TYPE_INT32", "2, 3", 8))
    with serving(folder.parent / "log", "--model-repository", folder) as running:
        yield running


def measure(server: RunningServer, name: str, data: Path, way: str = "http", batch_size: int = 1) -> LevelResult:
    """The result of five requests."""
    settings = dict(WAYS[way])
    formats = {key: settings.pop(key) for key in ("input_format", "output_format") if key in settings}
    url = server.grpc_url if settings.get("protocol") == "grpc" else server.url
    report = run_perf(
        PerfSettings(
            TargetSettings(model=name, url=url, **settings),
            InputSettings(source="", paths=(data,), batch_size=batch_size, **formats),
            measure=MeasureSettings(total_requests=5, collect_metrics=False),
        )
    )
    [level] = report.levels
    return level


def elements(datatype: DataType) -> bytes:
    """Three elements with every kind of bits that can travel in each form."""
    if datatype.is_bytes:
        return encode_bytes_elements([b"", "grüß".encode(), b"x" * 300])
    if datatype.wire == "BOOL":
        return bytes([1, 0, 1])
    if datatype.numpy.kind in "iu":
        bounds = np.iinfo(datatype.numpy)
        return np.array([bounds.min, bounds.max, 1], datatype.numpy).tobytes()
    return np.array([0.1, -1.5, 1e-3], datatype.numpy).tobytes()


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("wire", list(IDENTITIES))
def test_every_datatype_comes_back(server: RunningServer, tmp_path: Path, wire: str, way: str) -> None:
    datatype = TRIPLES[wire]
    data = elements(datatype)
    # A directory has strings line by line, so JSON with the bytes is used for all.
    file = tmp_path / "data.json"
    value = {"b64": base64.b64encode(data).decode()}
    file.write_text(json.dumps({"data": [{"INPUT0": value}], "validation_data": [{"OUTPUT0": value}]}))
    if "json" in way and not datatype.in_json:
        with pytest.raises(TargetError, match="has no form in JSON: use --input-tensor-format binary"):
            measure(server, IDENTITIES[wire], file, way)
        return
    level = measure(server, IDENTITIES[wire], file, way, batch_size=2)
    assert (level.merged.requests >= 5, dict(level.merged.errors)) == (True, {})


MATRIX = struct.pack("<6i", 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize(
    ("name", "given", "expected", "text"),
    [
        ("matrix", [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 6], "element [0,1,1] is 5, expected 7"),
        (
            "matrix",
            [1, 2, 3, 4, 5, 6],
            [1, 2, 7, 4, 8, 6],
            "element [0,0,2] is 3, expected 7 (2 of 6 elements differ)",
        ),
        (IDENTITIES["BYTES"], ["a", "b", "c"], ["a", "b", "cd"], "element [0,2] is b'c', expected b'cd'"),
        (IDENTITIES["BOOL"], [True, False, True], [True, True, True], "element [0,1] is False, expected True"),
        (IDENTITIES["FP32"], [0.0, 1.5, 2.0], [-0.0, 1.5, 2.0], "element [0,0] is 0.0, expected -0.0"),
    ],
)
def test_another_value_is_a_wrong_output(
    server: RunningServer, tmp_path: Path, name: str, given: list[Any], expected: list[Any], text: str, way: str
) -> None:
    file = tmp_path / "data.json"
    data = {"data": [{"INPUT0": given}] * 2, "validation_data": [{"OUTPUT0": given}, {"OUTPUT0": expected}]}
    file.write_text(json.dumps(data))
    level = measure(server, name, file, way)
    [((kind, cause), count)] = level.merged.errors.items()
    assert (kind, cause) == ("wrong output", f"'OUTPUT0' has other values than expected: {text}")
    # Each second step is the wrong one.
    assert abs(count - level.merged.requests) <= 1


def test_json_has_no_form_for_bytes_that_are_no_text(server: RunningServer, tmp_path: Path) -> None:
    data = encode_bytes_elements([b"a", b"\xff", b"c"])
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [{"INPUT0": {"b64": base64.b64encode(data).decode()}}]}))
    expected = r"has the element b'\\xff', which is not UTF-8 .*use --input-tensor-format binary$"
    with pytest.raises(TargetError, match=expected):
        measure(server, IDENTITIES["BYTES"], file, "http-json")


def test_nothing_right_at_all_is_one_message(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "INPUT0").write_bytes(MATRIX)
    (tmp_path / "OUTPUT0").write_bytes(MATRIX[::-1])
    with pytest.raises(TargetError, match=r"wrong output: 'OUTPUT0' has other values than expected: element \[0,0,0\]"):
        measure(server, "matrix", tmp_path)
