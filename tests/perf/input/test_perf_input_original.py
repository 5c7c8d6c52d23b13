"""Requests hold the same data, in the same order, as those of perf_analyzer itself; errors begin with its texts."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.perf.input.build import build_streams
from naiad.perf.input.error import PerfInputError
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription
from naiad.testing import RunningServer, serving
from support import served_models
from support.perf_models import model, tensor

pytestmark = pytest.mark.slow

PAIR = model(tensor("INPUT0", "INT32", 2), max_batch_size=8)
TEXTS = model(tensor("INPUT0", "BYTES", 2), max_batch_size=8)
FREE = model(tensor("INPUT0", "INT32", -1, 2), max_batch_size=8)
SEQUENCE = model(tensor("INPUT0", "INT32", 2), max_batch_size=8, is_sequence=True)
MODELS = {"pair": PAIR, "texts": TEXTS, "free": FREE, "sequence": SEQUENCE}


@pytest.fixture(scope="module")
def tool() -> str:
    found = os.environ.get("NAIAD_PERF_ANALYZER") or shutil.which("perf_analyzer")
    if not found:
        pytest.skip("perf_analyzer was not found: name it in NAIAD_PERF_ANALYZER or put it on PATH")
    return str(Path(found).resolve())


@pytest.fixture(scope="module")
def server(tool: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("models")
    idle = "sequence_batching { max_sequence_idle_microseconds: 60000000 }"
    for name, config in {
        "pair": served_models.identity("TYPE_INT32", "2", 8),
        "texts": served_models.identity("TYPE_STRING", "2", 8),
        "free": served_models.identity("TYPE_INT32", "-1, 2", 8),
        "sequence": served_models.identity("TYPE_INT32", "2", 8, extra=idle),
    }.items():
        served_models.write_model(folder, name, config)
    with serving(folder.parent / "log", "--model-repository", folder) as running:
        yield running


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(tool: str, server: RunningServer, name: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the original with eight requests, which it exports to ``export.json``."""
    command = [tool, "-m", name, "-u", server.url, "--request-count=8", "--profile-export-file=export.json", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def write(value: Any, name: str = "data.json") -> Path:
    """A JSON file in the working folder."""
    Path(name).write_text(json.dumps(value))
    return Path(name)


def rows(*values: int) -> list[dict[str, list[int]]]:
    """Steps for ``PAIR``."""
    return [{"INPUT0": [value, -value]} for value in values]


def ours(described: ModelDescription, batch_size: int, *files: Path) -> list[list[list[int]]]:
    """The elements of the input of each step of each stream."""
    streams = build_streams(InputSettings(source="", paths=files, batch_size=batch_size), described)
    return [[np.frombuffer(s.inputs[0].data, np.int32).tolist() for s in stream.steps] for stream in streams]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4])
def test_requests_have_the_same_data(tool: str, server: RunningServer, batch_size: int) -> None:
    files = [write({"data": rows(1, 2)}), write({"data": rows(3, 4, 5)}, "second.json")]
    done = run(tool, server, "pair", [f"-b{batch_size}", *(f"--input-data={file}" for file in files)])
    assert done.returncode == 0, done.stdout + done.stderr
    requests = json.loads(Path("export.json").read_text())["experiments"][0]["requests"]
    [steps] = ours(PAIR, batch_size, *files)
    # The model gives its input back; of a batch, the export holds the whole output, but one row of the input.
    found = [request["response_outputs"][0]["OUTPUT0"] for request in requests]
    assert found == [steps[i % len(steps)] for i in range(len(found))]


def test_sequences_have_the_same_data(tool: str, server: RunningServer) -> None:
    file = write({"data": [rows(1, 2), rows(3, 4, 5)]})
    done = run(tool, server, "sequence", [f"--input-data={file}"])
    assert done.returncode == 0, done.stdout + done.stderr
    requests = json.loads(Path("export.json").read_text())["experiments"][0]["requests"]
    found: dict[int, list[list[int]]] = {}
    for request in requests:
        found.setdefault(request["sequence_id"], []).append(request["request_inputs"]["INPUT0"])
    streams = ours(SEQUENCE, 1, file)
    # The last one may be cut off by the end of the run.
    whole = list(found.values())[:-1]
    assert len(whole) >= 2
    assert all(steps in streams for steps in whole)


ERRORS: list[tuple[str, str, Any, list[str]]] = [
    ("no JSON", "pair", None, []),
    ("no data", "pair", {"x": []}, []),
    ("mixed", "pair", [rows(1), rows(1)[0]], []),
    ("missing", "pair", [{}], []),
    ("unknown", "pair", [{"INPUT0": [1, 2], "X": [1]}], []),
    ("too long", "pair", [{"INPUT0": [1, 2, 3]}], []),
    ("too short", "pair", [{"INPUT0": {"b64": "AQAA"}}], []),
    ("no text", "pair", [{"INPUT0": {"b64": 7}}], []),
    ("no content", "pair", [{"INPUT0": {"shape": [2]}}], []),
    ("another shape", "pair", [{"INPUT0": {"content": [1, 2, 3], "shape": [3]}}], []),
    ("a string", "pair", [{"INPUT0": ["a", 2]}], []),
    ("a fraction", "pair", [{"INPUT0": [1.5, 2]}], []),
    ("a large number", "pair", [{"INPUT0": [2**40, 2]}], []),
    ("a number", "texts", [{"INPUT0": [1, "t"]}], []),
    ("no shape", "free", "random", []),
    ("a batch of two shapes", "free", [{"INPUT0": [[1, 2]]}, {"INPUT0": [[1, 2], [3, 4]]}], ["-b2"]),
    ("a batch without batching", "sequence", "random", ["-b2"]),
]


def first_words(text: str) -> str:
    """The error without what the original says before it, and without its full stop."""
    for start in ("error: ", "Failed to init manager inputs: ", "Unable to init infer data manager: "):
        text = text.removeprefix(start)
    return text.strip().rstrip(".])")


@pytest.mark.parametrize(("name", "data", "words"), [case[1:] for case in ERRORS], ids=[case[0] for case in ERRORS])
def test_errors_begin_with_the_same_words(
    tool: str, server: RunningServer, name: str, data: Any, words: list[str]
) -> None:
    paths: tuple[Path, ...] = ()
    if data != "random":
        paths = (write({"data": data} if isinstance(data, list) else data),)
        if data is None:
            paths[0].write_text('{"data": [')
        elif name == "free":
            # The original wants flat arrays with their shape.
            arrays = [np.array(step["INPUT0"]) for step in data]
            steps = [{"INPUT0": {"content": a.ravel().tolist(), "shape": list(a.shape)}} for a in arrays]
            paths = (write({"data": steps}),)
    done = run(tool, server, name, [*words, *(f"--input-data={path}" for path in paths)])
    assert done.returncode == 99
    lines = (done.stdout + done.stderr).splitlines()
    theirs = [first_words(line) for line in lines if line.startswith(("error: ", "can not specify"))]
    settings = InputSettings(source="" if paths else "random", paths=paths, batch_size=2 if words else 1)
    with pytest.raises(PerfInputError) as error:
        build_streams(settings, MODELS[name])
    assert theirs
    assert str(error.value).startswith(theirs[0]), theirs


def test_base64_is_read_the_same_way(tool: str, server: RunningServer) -> None:
    data = np.array([7, -7], np.int32).tobytes()
    file = write({"data": [{"INPUT0": {"content": {"b64": base64.b64encode(data).decode()}, "shape": [2]}}]})
    assert run(tool, server, "pair", [f"--input-data={file}"]).returncode == 0
    requests = json.loads(Path("export.json").read_text())["experiments"][0]["requests"]
    assert {tuple(request["request_inputs"]["INPUT0"]) for request in requests} == {(7, -7)}
    assert ours(PAIR, 1, file) == [[[7, -7]]]
