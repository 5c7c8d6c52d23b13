"""Custom batching: finding the class, what it is told and asked, and that it hurts nobody when it fails."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from naiad.config.freeze import freeze
from naiad.config.messages import ModelConfig
from naiad.config.normalize import normalize
from naiad.errors import ModelLoadError
from naiad.execution.model.custom_batching import CustomBatching
from naiad.lifecycle.loading.custom_batching_file import load_strategy
from naiad.request import InferRequest, RequestOptions
from support.kept_objects import kept

CONFIG = """
name: "m" backend: "identity" max_batch_size: 8 %s
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
input { name: "t" data_type: TYPE_STRING dims: [ 1 ] optional: true }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } output { name: "z" data_type: TYPE_STRING dims: [ 1 ] }"""
BATCHING = "dynamic_batching { } "
# At most six elements of x in a batch.
VOLUME = """
import dataclasses, json

@dataclasses.dataclass
class Volume:
    left: int

class BatchStrategy:
    def initialize(self, args):
        self.most = int(json.loads(args["model_config"])["parameters"]["most"]["string_value"])
        self.calls = [("initialize", args["model_name"], args["model_version"])]

    def batch_initialize(self):
        self.calls.append("batch_initialize")
        return Volume(self.most)

    def include_request(self, request, batch):
        shape = request.inputs["x"].shape
        self.seen = request
        batch.left -= shape[0] * shape[1]
        return batch.left >= 0

    def batch_finalize(self, batch):
        self.calls.append("batch_finalize")

    def finalize(self):
        self.calls.append("finalize")
"""
MOST = 'parameters { key: "most" value { string_value: "6" } } '


def path(text: str) -> str:
    return f'parameters {{ key: "TRITON_BATCH_STRATEGY_PATH" value {{ string_value: "{text}" }} }} '


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m" / "1").mkdir(parents=True)
    return tmp_path / "m"


def load(folder: Path, more: str = BATCHING, backends: str = "") -> CustomBatching | None:
    config = text_format.Parse(CONFIG % more, ModelConfig())
    normalize(config)
    return load_strategy(freeze(config), 1, config, folder, folder / "1", backends)


def request(length: int, rows: int = 1) -> InferRequest:
    texts = np.array([[b"abc"]] * rows, object)
    inputs = {"x": np.zeros((rows, length), np.float32), "t": texts}
    return InferRequest(RequestOptions(("y",), rows, None, {"k": 1}, 3, correlation_id=7), inputs, "a")


def test_a_model_without_one(folder: Path) -> None:
    assert load(folder) is None


@pytest.mark.parametrize("place", ["m/1", "m", "backends/identity"])
def test_where_it_is_looked_for(folder: Path, place: str) -> None:
    target = folder.parent / place
    target.mkdir(parents=True, exist_ok=True)
    (target / "batchstrategy.py").write_text(VOLUME)
    assert load(folder, BATCHING + MOST, str(folder.parent / "backends")) is not None
    assert not list(folder.rglob("__pycache__")), "nothing is written into a repository"


def test_the_hooks_are_called(folder: Path) -> None:
    (folder / "rules").mkdir()
    (folder / "rules" / "volume.py").write_text(VOLUME)
    limit = load(folder, BATCHING + MOST + path("rules/volume.py"))
    assert limit is not None
    (strategy,) = [one for one in kept(limit) if hasattr(one, "calls")]
    limit.begin(request(4))
    assert limit.takes(request(2))
    assert not limit.takes(request(1))
    limit.end()
    limit.begin(request(100))
    limit.end()
    limit.close()
    limit.close()
    assert strategy.calls == [("initialize", "m", "1"), *["batch_initialize", "batch_finalize"] * 2, "finalize"]
    seen = strategy.seen
    assert (seen.id, seen.rows, seen.priority, seen.parameters, seen.correlation_id) == ("a", 1, 3, {"k": 1}, 7)
    assert seen.requested_outputs == ("y",)
    found = {n: (i.shape, i.datatype, i.byte_size) for n, i in seen.inputs.items()}
    assert found == {"x": ((1, 100), "FP32", 400), "t": ((1, 1), "BYTES", 7)}


REFUSED = [
    (path("libbatch.so"), "a shared library, and Naiad takes a Python class"),
    (path("rules.txt"), "expected a file whose name ends with .py"),
    (path("missing.py"), "there is no such file"),
    (path("../other.py"), "outside the model's folder"),
    (path("/etc/rules.py"), "outside the model's folder"),
    (path(""), "expected the path of a Python file"),
]


@pytest.mark.parametrize(("more", "problem"), REFUSED)
def test_a_wrong_path_is_refused(folder: Path, more: str, problem: str) -> None:
    (folder.parent / "other.py").write_text(VOLUME)
    with pytest.raises(ModelLoadError, match=problem):
        load(folder, BATCHING + more)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = (", "SyntaxError"),
        ("import no_such_module", "no_such_module"),
        ("", "has no attribute 'BatchStrategy'"),
        ("class BatchStrategy: pass", "has no method include_request"),
        ("class BatchStrategy:\n include_request = print\n def initialize(self, args): 1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(folder: Path, text: str, problem: str) -> None:
    (folder / "batchstrategy.py").write_text(text)
    with pytest.raises(ModelLoadError, match=problem):
        load(folder)


def test_it_needs_dynamic_batching(folder: Path) -> None:
    (folder / "batchstrategy.py").write_text(VOLUME)
    with pytest.raises(ModelLoadError, match="needs 'dynamic_batching'"):
        load(folder, "")


def test_a_library_of_the_reference_is_told_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "1" / "batchstrategy.so").write_bytes(b"")
    assert load(folder) is None
    assert "the shared library batchstrategy.so is not used" in caplog.text


@pytest.mark.parametrize("error", ["ValueError('x')", "SystemExit(1)"])
def test_what_raises_counts_as_yes_and_is_told_once(folder: Path, caplog: pytest.LogCaptureFixture, error: str) -> None:
    (folder / "batchstrategy.py").write_text(
        f"class BatchStrategy:\n def include_request(self, request, batch): raise {error}\n"
    )
    limit = load(folder)
    assert limit is not None
    with caplog.at_level(logging.ERROR):
        for _ in range(100):
            limit.begin(request(1))
            assert limit.takes(request(1))
            limit.end()
        limit.close()
    assert len([r for r in caplog.records if "include_request() of the batch strategy" in r.getMessage()]) == 1
