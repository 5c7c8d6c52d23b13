"""Python models in processes of their own, loaded as the server loads them, and callers that wait for their answers."""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.local.discover import discover
from naiad.request import RequestOptions
from support import event_loops
from support.child_processes import children
from support.event_loops import WAIT_S
from support.noted_requests import NotedRequest

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


def write_model(repository: Path, methods: str = ECHO, more: str = "", name: str = "m", functions: str = "") -> Path:
    """Write a model whose class has ``methods``; ``more`` is added to its configuration. Its file.

    ``functions`` stand before the class.
    """
    path = repository / name / "1" / "model.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    (repository / name / "config.pbtxt").write_text(CONFIG + more)
    methods = textwrap.indent(textwrap.dedent(methods), "    ")
    path.write_text(f"{HEAD}{functions}class TritonPythonModel:\n{methods}")
    return path


@contextlib.asynccontextmanager
async def loading(manager: ModelManager, repository: Path) -> AsyncIterator[ModelManager]:
    """All models of a repository; in the end they must unload in time, and no process may be left."""
    await manager.load_all(discover([repository], []).models.values())
    try:
        yield manager
    finally:
        assert await manager.unload_all(WAIT_S)
        assert children() == []


@contextlib.asynccontextmanager
async def serving(repository: Path, **settings: str) -> AsyncIterator[Engine]:
    """An engine with all models of a repository; ``settings`` are those of their backend."""
    manager = ModelManager(LoadSettings(lambda backend: settings, cores=1), 2)
    engine = Engine(manager, "test", True)
    async with loading(manager, repository):
        yield engine


def play(
    repository: Path,
    test: Callable[[Any], Awaitable[object]],
    methods: str = ECHO,
    more: str = "",
    functions: str = "",
    **settings: str,
) -> None:
    """Write a model as ``write_model`` does, serve it and run a test with it; ``settings`` are those of its backend."""
    write_model(repository, methods, more, functions=functions)

    async def scenario(engine: Engine) -> None:
        await test(engine.find("m", ""))

    event_loops.play(serving(repository, **settings), scenario)


def open_files() -> list[str]:
    """What the open descriptors of this process lead to."""
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return sorted(found)


def mapped_segments() -> int:
    """How many segments this process has mapped."""
    return sum("memfd:naiad" in line for line in Path("/proc/self/maps").read_text().splitlines())


def process_of(model: LoadedModel, index: int = 0) -> psutil.Process:
    """The process of an instance."""
    pid = model.instances[index].pid
    assert pid, "there is no process"
    return psutil.Process(pid)


class Caller(NotedRequest):
    """A request with one row; its answers are noted, and those of a decoupled model in ``parts``."""

    __slots__ = ("parts",)

    def __init__(self, values: np.ndarray | float = 1.0, options: RequestOptions | None = None, id: str = "") -> None:
        row = np.atleast_1d(np.asarray(values, np.float32)).reshape(1, -1)
        super().__init__(options or RequestOptions(("y",), 1, (("x", row.shape[1:]),)), {"x": row}, id)
        self.parts: list[tuple[Mapping[str, np.ndarray] | None, NaiadError | None, bool]] = []

    def respond_part(self, outputs: Mapping[str, np.ndarray] | None, error: NaiadError | None, final: bool) -> None:
        self.parts.append((outputs, error, final))
        if final:
            self.done.set()
