"""Python models for tests, and a server that serves them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc

from naiad.testing import RunningServer, serving

HEAD = """
import os, signal, sys, time
import numpy as np
import triton_python_backend_utils as pb_utils
"""
DOUBLES = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)]))
        return answers
"""
# What it does is told by the first number of its input.
MISBEHAVES = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            what = int(x.flat[0])
            if what == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if what == 2:
                os._exit(3)
            if what == 3:
                import ctypes
                ctypes.string_at(0)
            if what == 4:
                sys.exit("the model has had enough")
            if what == 5:
                return None
            if what == 6:
                time.sleep(60)
            if what == 7:
                print("a last word", flush=True)
                os._exit(4)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        return answers
"""
REPEATS = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            sender = request.get_response_sender()
            for n in range(int(x.flat[0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.full_like(x, n))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
TENSORS = """
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def waits_for(file: Path) -> str:
    """The source of a model that gives X back as Y once a file exists."""
    return f"""
class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists({str(file)!r}):
            time.sleep(0.01)
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in tensors]
"""


def write_python_model(
    repository: Path, name: str, source: str, more: str = "max_batch_size: 8", count: int = 1, tensors: str = TENSORS
) -> Path:
    """A Python model; its folder."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(HEAD + textwrap.dedent(source))
    group = f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]"
    (folder / "config.pbtxt").write_text(f'backend: "python" {more} {tensors} {group}')
    return folder


class Client:
    """A client of one server."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}")

    def infer(self, model: str, *values: float, **more: Any) -> np.ndarray[Any, Any]:
        """Ask for one inference with a row of values; the output."""
        return self.infer_array(model, np.array([values], np.float32), **more)

    def infer_array(self, model: str, x: np.ndarray[Any, Any], **more: Any) -> np.ndarray[Any, Any]:
        """Ask for one inference with an array."""
        given = tritonclient.grpc.InferInput("X", x.shape, "FP32")
        given.set_data_from_numpy(x)
        found: np.ndarray[Any, Any] = self.grpc.infer(model, [given], **more).as_numpy("Y")
        return found

    def load(self, model: str) -> None:
        """Load a model of a server in explicit mode."""
        answer = self.server.post(f"/v2/repository/models/{model}/load", {})
        assert answer.status == 200, answer.body

    def children(self) -> list[psutil.Process]:
        """The processes of the models."""
        found: list[psutil.Process] = psutil.Process(self.server.process.pid).children()
        return found


@contextmanager
def client_of(repository: Path, log: Path, *arguments: object, **options: Any) -> Iterator[Client]:
    """A client of a server that serves a repository; ``options`` are of ``subprocess.Popen``."""
    with serving(log, "--model-repository", repository, *arguments, **options) as server:
        client = Client(server)
        try:
            yield client
        finally:
            client.grpc.close()
