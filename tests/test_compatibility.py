"""The rows of "Differences on purpose" in docs/compatibility.md, against a real server.

That a bare model file can be served is tested with the README, which does it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx.parser
import pytest

from support.networks import load_script

CALLERS = 9
IDENTITY = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_INT8 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_INT8 dims: [ -1 ] } ]
"""
# Looks up a row of a table of four: any other index makes the run fail.
LOOK_UP = """<ir_version: 8, opset_import: ["": 17]>
look_up (int64[N, 1] index) => (float[N, 1] value) {
  table = Constant <value_floats = [10.0, 11.0, 12.0, 13.0]> ()
  value = Gather (table, index)
}"""
LOOK_UP_CONFIG = f"""
max_batch_size: {CALLERS}
dynamic_batching {{ preferred_batch_size: [ {CALLERS} ] max_queue_delay_microseconds: 500000 }}
instance_group [ {{ count: 1 kind: KIND_CPU }} ]
"""


def write_models(repository: Path) -> None:
    (repository / "identity" / "1").mkdir(parents=True)
    (repository / "identity" / "config.pbtxt").write_text(IDENTITY)
    (repository / "look_up" / "1").mkdir(parents=True)
    (repository / "look_up" / "config.pbtxt").write_text(LOOK_UP_CONFIG)
    onnx.save(onnx.parser.parse_model(LOOK_UP), repository / "look_up" / "1" / "model.onnx")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with both models."""
    repository = tmp_path_factory.mktemp("compatibility") / "models"
    write_models(repository)
    server = load_script("demo_server").DemoServer(repository, 0, 0, ready_s=60, show_log=False)
    yield server.url
    assert server.stop() == 0


def ask(url: str, model: str, body: bytes) -> tuple[int, dict]:
    """Status and JSON body of one inference request."""
    request = urllib.request.Request(f"http://{url}/v2/models/{model}/infer", data=body)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def numbers(shape: list[int], data: list[object]) -> bytes:
    return json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT8", "shape": shape, "data": data}]}).encode()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(numbers([9223372036854775807, 16], [1]), "exceed maximum size", id="shape that overflows"),
        pytest.param(b'{"inputs":[{"name":', "failed to parse the request JSON buffer", id="broken JSON"),
        pytest.param(b'{"inputs":5}', "Unable to parse 'inputs'", id="wrong type"),
        pytest.param(b'{"id":"7"}', "Unable to parse 'inputs'", id="missing key"),
        pytest.param(numbers([-2], [1, 3]), "invalid shape for input 'INPUT0'", id="negative dimension"),
        pytest.param(numbers([3], [1, 3]), "Shape does not match true shape of 'data' field", id="wrong count"),
        pytest.param(numbers([2], [1, 300]), "300", id="number that does not fit"),
    ],
)
def test_bad_requests_are_400_and_harm_nobody(url: str, body: bytes, text: str) -> None:
    status, answer = ask(url, "identity", body)
    assert status == 400
    assert text in answer["error"]
    status, answer = ask(url, "identity", numbers([2], [1, -3]))
    assert (status, answer["outputs"][0]["data"]) == (200, [1, -3])


def look_up(url: str, indices: list[int]) -> list[tuple[int, dict]]:
    """What callers get who ask at the same time, one for each index."""

    def one(index: int) -> tuple[int, dict]:
        tensor = {"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [index]}
        return ask(url, "look_up", json.dumps({"inputs": [tensor]}).encode())

    with ThreadPoolExecutor(len(indices)) as callers:
        return list(callers.map(one, indices))


def batch_sizes(url: str) -> set[int]:
    with urllib.request.urlopen(f"http://{url}/v2/models/look_up/stats", timeout=20) as answer:
        return {batch["batch_size"] for batch in json.load(answer)["model_stats"][0]["batch_stats"]}


def test_a_request_that_fails_in_a_batch_costs_only_its_own(url: str) -> None:
    assert {status for status, _ in look_up(url, [0] * CALLERS)} == {200}
    assert max(batch_sizes(url)) > 1
    indices = [0, 1, 2, 3, 99, 3, 2, 1, 0]
    for index, (status, answer) in zip(indices, look_up(url, indices), strict=True):
        if index == 99:
            assert status == 500
            assert "99" in answer["error"]
        else:
            assert (status, answer["outputs"][0]["data"]) == (200, [10.0 + index])


def naiad(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line and keep what it says."""
    command = [sys.executable, "-m", "naiad", *arguments]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NAIAD_")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_version_is_printed() -> None:
    done = naiad("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d+\.\d+", done.stdout)


def test_bad_option_shows_only_what_is_wrong() -> None:
    done = naiad("serve", "--htp-port", "8000")
    assert done.returncode == 1
    assert "--htp-port" in done.stderr
    assert "--http-port" in done.stderr
    assert len(done.stderr.splitlines()) < 6


def test_check_lists_every_problem(tmp_path: Path) -> None:
    for model, field in (("one", "perferred_batch_size: [ 4 ]"), ("two", "max_queue_delay_microsecond: 5")):
        (tmp_path / model / "1").mkdir(parents=True)
        config = f'backend: "identity"\nmax_batch_size: 8\ndynamic_batching {{\n  {field}\n}}\n'
        (tmp_path / model / "config.pbtxt").write_text(config)
    done = naiad("check", str(tmp_path))
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "one/config.pbtxt:4" in said
    assert "preferred_batch_size" in said
    assert "two/config.pbtxt:4" in said
    assert "max_queue_delay_microseconds" in said
