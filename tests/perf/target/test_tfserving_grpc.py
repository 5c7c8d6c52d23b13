"""TensorFlow Serving over gRPC, against a server on grpcio that reads and writes TensorFlow's own tensors."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.perf.target.protocol import TargetError
from support.perf_runs import measure, measure_level
from support.tfserving_grpc_peer import tfserving_grpc_peer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("tensorflow", "grpc"))), reason="needs tensorflow and grpcio"
    ),
]
MODEL = ("-m", "half_plus_three", "--service-kind", "tfserving", "-i", "grpc")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tfserving_grpc_peer() as address:
        yield address


@pytest.mark.parametrize(
    ("words", "steps", "expected"),
    [
        (("-b", 2), [{"x": [1]}, {"x": [2.5]}], [{"y": [3.5]}, {"y": [4.25]}]),
        (("--shape", "x:2", "-x", 123), [{"x": [1, 2.5]}], [{"y": [3.5, 4.25]}]),
        (
            ("--model-signature-name", "many", "--grpc-compression-algorithm", "gzip"),
            [{"i": [-7, 7], "s": ["text"], "b": [True]}],
            [{"i": [-7, 7], "s": ["text"], "b": [True]}],
        ),
    ],
)
def test_tensors_arrive_and_come_back(
    server: str, tmp_path: Path, words: tuple[object, ...], steps: list[object], expected: list[object]
) -> None:
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": steps, "validation_data": expected}))
    given = (*MODEL, "-u", server, *words, "--input-data", file, "--request-count", 20, "--concurrency-range", 3)
    window = measure_level(*given).merged
    assert (window.requests, window.errors) == (20, {})


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("-m", "other"), "'other' at .* failed: gRPC NOT_FOUND: Servable not found for request: Latest"),
        (("-x", "5"), "gRPC NOT_FOUND"),
        (
            ("--model-signature-name", "nope"),
            'Failed to find signature_name "nope" in the metadata: found many, serving_d',
        ),
    ],
)
def test_what_is_not_there(server: str, words: tuple[str, ...], match: str) -> None:
    with pytest.raises(TargetError, match=match):
        measure(*MODEL, "-u", server, *words)
