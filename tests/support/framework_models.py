"""A backend that does what a test tells it to, for models in processes of their own and in shared ones."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from naiad.backends.registry import BACKENDS, BackendEntry
from support.config_texts import parameter

NAME = "rowdy"
WAYS = ("process", pytest.param("shared", marks=pytest.mark.slow))
# What it does is told by the first number of its input. From 1000 on it notes that it has begun, in its own folder, and
# waits for the file "go" there.
SOURCE = """
import ctypes, logging, os, signal, sys, time
import numpy as np
from naiad.backend_api.backend import Backend, Instance
from naiad.errors import BackendError, ModelLoadError

class RowdyInstance(Instance):
    def __init__(self, texts):
        self.texts = texts

    def execute(self, inputs, outputs):
        x = inputs["x"]
        for what in x[:, :1].ravel().tolist():
            if what >= 1000:
                folder = os.path.dirname(__file__)
                open(f"{folder}/begun-{int(what)}", "w").close()
                while not os.path.exists(f"{folder}/go"):
                    time.sleep(0.001)
            if what == 101:
                ctypes.string_at(0)
            if what == 102:
                raise BackendError("this input is not liked")
            if what == 103:
                time.sleep(60)
            if what == 104:
                os._exit(3)
            if what == 105:
                os.abort()
            if what == 106:
                raise MemoryError("no memory for this input")
            if what == 108:
                raise BackendError("not UTF-8: \\udcff")
            if what == 107:
                print("a last word", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        return {"y": np.full(x.shape, "text", object) if self.texts else x * 2}

class Rowdy(Backend):
    def complete(self, config):
        if not config.input:
            for kind, name in (("input", "x"), ("output", "y")):
                tensor = getattr(config, kind).add()
                tensor.name, tensor.data_type = name, 11
                tensor.dims.append(-1)

    def start(self, spec):
        logging.getLogger("naiad").warning("model '%s': rowdy speaks", spec.name)
        told = spec.parameters.get("start")
        if told == "fail":
            raise ModelLoadError("this model is not liked")
        if told == "crash":
            ctypes.string_at(0)
        if told == "raise":
            raise ValueError("something unforeseen")
        self.texts = "texts" in spec.parameters
        self.memory = np.ones(int(spec.parameters.get("megabytes", "0")) << 17)

    def create_instance(self, group, index):
        return RowdyInstance(self.texts)
"""
CONFIG = """
backend: "rowdy"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the backend known in this process and in all that it starts."""
    folder.mkdir(exist_ok=True)
    (folder / "rowdy.py").write_text(SOURCE)
    (folder / "sitecustomize.py").write_text(
        f'from naiad.backends import registry\nregistry.BACKENDS["{NAME}"] = registry.BackendEntry("rowdy:Rowdy")\n'
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(BACKENDS, NAME, BackendEntry("rowdy:Rowdy"))


def write_rowdy(repository: Path, way: str, name: str = "m", more: str = "", config: str = CONFIG) -> None:
    """Write a model whose instances run that way."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config + parameter("execution", way) + more)


def memory_of(process: int) -> int:
    """Memory that belongs to a process alone, in bytes."""
    return int(psutil.Process(process).memory_full_info().uss)
