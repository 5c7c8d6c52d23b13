"""Python models in processes of their own, loaded as the server loads them, and callers that wait for their answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from time import monotonic_ns

import numpy as np
import psutil

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.worker.instance import ProcessInstance
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.local.discover import discover
from naiad.request import InferRequest, RequestOptions

WAIT_S = 30.0
HEAD = "import os, signal, sys, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
ECHO = """
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
"""
CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }]
"""


def write_model(repository: Path, methods: str = ECHO, more: str = "", name: str = "m") -> Path:
    """Write a model whose class has ``methods``; ``more`` is added to its configuration. Its file."""
    path = repository / name / "1" / "model.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(CONFIG + more)
    methods = textwrap.indent(textwrap.dedent(methods), "    ")
    path.write_text(f"{HEAD}class TritonPythonModel:\n{methods}")
    return path


@contextlib.asynccontextmanager
async def serving(repository: Path, **settings: str) -> AsyncIterator[Engine]:
    """All models of a repository; in the end they must unload in time, and no process may be left."""
    manager = ModelManager(LoadSettings(lambda backend: settings, cores=1), 2)
    await manager.load_all(discover([repository], []).models.values())
    engine = Engine(manager, "test", True)
    try:
        yield engine
    finally:
        assert await manager.unload_all(WAIT_S)
        assert children() == []


def children() -> list[int]:
    """The numbers of this process's children, but for those that stay until all tests are done.

    Those are the servers that other tests share, and what Python itself starts with the first shared memory.
    """
    return [child.pid for child in psutil.Process().children() if not _stays(child)]


def _stays(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        command = child.cmdline()
        return "serve" in command or any("multiprocessing.resource_tracker" in word for word in command)
    return False


def open_files() -> list[str]:
    """What the open descriptors of this process lead to."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return sorted(found)


def process_of(model: LoadedModel, index: int = 0) -> psutil.Process:
    """The process of an instance."""
    instance = model._instances[index]
    assert isinstance(instance, ProcessInstance)
    process = instance._process
    assert process is not None
    return psutil.Process(process.process.pid)


class Caller(InferRequest):
    """A request with one row; its answers are noted."""

    __slots__ = ("answers", "done", "parts")

    def __init__(self, values: np.ndarray | float = 1.0, options: RequestOptions | None = None, id: str = "") -> None:
        row = np.atleast_1d(np.asarray(values, np.float32)).reshape(1, -1)
        options = options or RequestOptions(("y",), 1, (("x", row.shape[1:]),))
        super().__init__(options, {"x": row}, id, monotonic_ns())
        self.answers: list[tuple[Mapping[str, np.ndarray], NaiadError | None]] = []
        self.parts: list[tuple[Mapping[str, np.ndarray] | None, NaiadError | None, bool]] = []
        self.done = asyncio.Event()

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        self.answers.append((outputs, error))
        self.done.set()

    def respond_part(self, outputs: Mapping[str, np.ndarray] | None, error: NaiadError | None, final: bool) -> None:
        self.parts.append((outputs, error, final))
        if final:
            self.done.set()

    async def outputs(self, within_s: float = WAIT_S) -> Mapping[str, np.ndarray]:
        """The outputs; raises the error that came instead."""
        await asyncio.wait_for(self.done.wait(), within_s)
        assert len(self.answers) == 1
        outputs, error = self.answers[0]
        if error is not None:
            raise error
        return outputs

    async def error(self, within_s: float = WAIT_S) -> NaiadError:
        """The error that came."""
        await asyncio.wait_for(self.done.wait(), within_s)
        assert len(self.answers) == 1
        _, error = self.answers[0]
        assert error is not None
        return error


def submit(model: LoadedModel, *callers: Caller) -> None:
    """Hand requests in, in one turn of the loop."""
    for caller in callers:
        model.submit(caller)


async def until(condition: Callable[[], object], within_s: float = WAIT_S) -> None:
    """Let the loop turn until a condition that another process brings about holds."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.005)
