"""What the authors of models rely on without thinking of it: ``reshape``, names from tensors, and what the log says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from naiad.testing import wait_until
from support.python_models import DOUBLES, Client, client_of, write_python_model
from support.source_tree import ROOT
from support.triton_inputs import input_of

SEEN_S = 5.0
RESHAPED = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] } },
        { name: "S" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: SCALE } } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] } },
         { name: "SEEN" data_type: TYPE_INT64 dims: [ -1 ] } ]
"""
TELLS_SHAPES = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        x, s = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in "XS")
        seen = np.array([x.shape + s.shape] * len(x) if BATCHES else x.shape + s.shape)
        y = x * s.reshape(s.shape[:1] + (1,) * (x.ndim - 1))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", y), pb_utils.Tensor("SEEN", seen)])
"""
CALLS_BY_NAME = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(r) for r in requests]

    def answer(self, request):
        x, model = (pb_utils.get_input_tensor_by_name(request, name) for name in ("X", "MODEL"))
        call = pb_utils.InferenceRequest(
            model_name=model.as_numpy().flat[0], requested_output_names=["Y"], inputs=[x])
        response = call.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        return pb_utils.InferenceResponse(output_tensors=response.output_tensors())
"""
SPAWNS = """
import multiprocessing
import sys


def double(x):
    return pb_utils.Tensor("Y", 2 * x).as_numpy()


class Told:
    def __del__(self):
        sys.stderr.write("the model is gone\\n")


class TritonPythonModel:
    def initialize(self, args):
        self.told = Told()

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        with multiprocessing.get_context("START").Pool(1) as pool:
            found = pool.map_async(double, arrays).get(DEADLINE_S)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]) for y in found]

    def finalize(self):
        sys.stderr.write("finalize\\n")
"""
NAMED = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] }, { name: "MODEL" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
LOGS = """
class TritonPythonModel:
    def execute(self, requests):
        log = pb_utils.Logger
        log.log_info("größe")
        log.log_warn("two\\nlines")
        log.log_error("bad")
        log.log_verbose("details")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]) for _ in requests]
"""
MISFITS = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(int(pb_utils.get_input_tensor_by_name(r, "X").as_numpy().flat[0])) for r in requests]

    def answer(self, what):
        y = np.zeros((1, 3), np.float32)
        given = {1: [("Y", y.astype(np.float64))], 2: [("Z", y), ("Y", y)], 3: [("Y", y[0])]}.get(what, [("Y", y)])
        return pb_utils.InferenceResponse([pb_utils.Tensor(*one) for one in given])
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("as_written")
    models = folder / "models"
    write_python_model(models, "doubles", DOUBLES, more="max_batch_size: 0")
    write_python_model(models, "calls", CALLS_BY_NAME, "max_batch_size: 0", tensors=NAMED)
    for name, batches, scale in (("batched", 8, "[ ]"), ("single", 0, "[ 1, 1 ]")):
        source, tensors = TELLS_SHAPES.replace("BATCHES", str(batches)), RESHAPED.replace("SCALE", scale)
        write_python_model(models, name, source, f"max_batch_size: {batches}", tensors=tensors)
    write_python_model(models, "logs", LOGS)
    for number in range(4):
        write_python_model(models, f"misfits_{number}", MISFITS)
    with client_of(models, folder / "log", "--log-verbose", "1") as found:
        yield found


@pytest.mark.parametrize("items", [1, 3, 2000])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_model_sees_the_reshaped_tensors(client: Client, rows: int, items: int) -> None:
    model, lead, scale = ("batched", (rows,), (rows,)) if rows else ("single", (), (1, 1))
    x = np.arange(np.prod(lead, dtype=int) * items * 4, dtype=np.float32).reshape(*lead, items, 4)
    s = np.full((*lead, 1), 2, np.float32)
    for _ in range(2):
        answer = client.grpc.infer(model, [input_of(tritonclient.grpc, "X", x), input_of(tritonclient.grpc, "S", s)])
        seen = [*lead, items, 2, 2, *scale]
        assert answer.as_numpy("SEEN").reshape(-1, len(seen)).tolist() == [seen] * max(rows, 1)
        assert np.array_equal(answer.as_numpy("Y"), 2 * x)


def test_a_called_model_is_named_by_an_element_of_a_tensor(client: Client) -> None:
    x = np.arange(3, dtype=np.float32)
    answer = client.grpc.infer(
        "calls",
        [
            input_of(tritonclient.grpc, "X", x),
            input_of(tritonclient.grpc, "MODEL", np.array([b"doubles"], object), "BYTES"),
        ],
    )
    assert np.array_equal(answer.as_numpy("Y"), 2 * x)


def test_lines_of_the_logger_name_the_file_and_line_of_the_model(client: Client) -> None:
    client.infer("logs", 1)
    pid = client.server.process.pid
    for letter, line, text in (("I", 9, "größe"), ("W", 10, r"two\\nlines"), ("E", 11, "bad"), ("I", 12, "details")):
        pattern = rf'^{letter}\d{{4}} \S+ {pid} model\.py:{line}\] "logs_0_0: {text}"$'
        wait_until(lambda: re.search(pattern, client.server.log, re.M), SEEN_S, pattern)  # noqa: B023


@pytest.mark.parametrize(
    ("what", "dtype", "shape", "warning"),
    [
        (0, np.float32, (1, 3), ""),
        (1, np.float64, (1, 3), "'Y' as FP64, but its configuration says FP32: callers get FP64"),
        (
            2,
            np.float32,
            (1, 3),
            "'Z', which its configuration does not have: it is left out of the answer; expected: 'Y'",
        ),
        (3, np.float32, (3,), "'Y' with shape [3], but its configuration says [-1, -1]: callers get it as it is"),
    ],
)
def test_what_differs_from_the_configuration_reaches_callers_and_is_said_once(
    client: Client, what: int, dtype: type, shape: tuple[int, ...], warning: str
) -> None:
    name = f"misfits_{what}"
    for _ in range(2):
        found = client.infer(name, what)
        assert (found.dtype, found.shape) == (dtype, shape)
    if warning:
        text = f"returned output {warning}"
        wait_until(lambda: text in client.server.log, SEEN_S, text)
        assert client.server.log.count(text) == 1
    assert len(re.findall(rf"{name}\S* returned", client.server.log)) == bool(warning)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_processes_that_a_model_starts_run_its_functions(tmp_path: Path, start: str) -> None:
    source = SPAWNS.replace("START", start).replace("DEADLINE_S", "20")
    write_python_model(tmp_path / "models", "spawns", source)
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        assert client.infer("spawns", 3)[0, 0] == 6


def test_a_model_is_dropped_when_it_has_ended(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "spawns", SPAWNS.replace("DEADLINE_S", "20"))
    with client_of(tmp_path / "models", tmp_path / "log") as client:
        server = client.server
    assert re.search("finalize.*the model is gone", server.log, re.DOTALL)


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "python-models.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (config,) = re.findall(r"```\n(?:# .*\n)?(backend: .*?)```", text, re.S)
    (asked,) = re.findall(r"infer -d '(.*?)'", text, re.S)
    (answer,) = re.findall(r"```json\n(.*?)```", text, re.S)
    folder = tmp_path / "models" / "add"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(source)
    (folder / "config.pbtxt").write_text(config)
    with client_of(tmp_path / "models", tmp_path / "log") as found:
        assert found.server.infer("add", json.loads(asked)).body.decode() == answer.strip()
