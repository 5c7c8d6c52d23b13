"""Models for a server on a GPU: PyTorch in each of its forms, ONNX, and Python that works on the GPU. Needs torch."""

from __future__ import annotations

from pathlib import Path

import torch

from support import onnx_models, torch_models
from support.served_ensembles import step
from support.served_models import tensor

X, Y = tensor("x", "TYPE_FP32", "3"), tensor("y", "TYPE_FP32", "3")
SHAPES = f"max_batch_size: 8 input [ {X} ] output [ {Y} ]\n"
ON_GPU = "instance_group [ { kind: KIND_GPU count: 1 gpus: [ 0 ] } ]\n"
IN_THREAD = 'parameters { key: "execution" value { string_value: "thread" } }\n'
STAYS = 'parameters { key: "FORCE_CPU_ONLY_INPUT_TENSORS" value { string_value: "no" } }\n'

PYTHON = """
import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    # y = x + 1, computed on the GPU into memory that is used again.

    def initialize(self, args):
        assert args["model_instance_kind"] == "GPU" and args["model_instance_device_id"] == "0", args
        self.takes_gpu_tensors = args["model_name"] == "adds_in_thread"
        self.kept = torch.zeros(8, 3, device="cuda:0")

    def execute(self, requests):
        responses = []
        for request in requests:
            given = pb_utils.get_input_tensor_by_name(request, "x")
            x = torch.from_dlpack(given).to("cuda:0")
            y = torch.add(x, 1, out=self.kept[: len(x)])
            response = pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("y", y)])
            responses.append(response)
        return responses
"""

EAGER = """
import torch


class Scales(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.factor
"""


class Scales(torch.nn.Module):  # type: ignore[misc]
    """x * 2, with the factor as a weight and a bias that it makes on the device of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor + torch.zeros(3, device=x.device)


class AddsInPlace(torch.nn.Module):  # type: ignore[misc]
    """x + 1, which it writes over its input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1.0)


class Large(torch.nn.Module):  # type: ignore[misc]
    """Weights of ``mib`` MiB, of which it adds none."""

    def __init__(self, mib: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(mib << 18))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weights[0]


class LooksUp(torch.nn.Module):  # type: ignore[misc]
    """A row of a table of four; the GPU itself finds that an index is beyond it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(4, 3)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        row: torch.Tensor = self.table(index).squeeze(1)
        return row


def write(repository: Path, name: str, config: str, file: str) -> Path:
    """Write a configuration; returns the path of the model's file, whose folder exists."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(config)
    return folder / file


def write_torch(repository: Path) -> None:
    """``script``, ``eager`` and ``exported`` double; ``adds`` adds one in place. ``script`` leaves its kind open."""
    named = 'backend: "pytorch" default_model_filename: "model.pt"\n'
    torch_models.save(write(repository, "script", named + SHAPES, "model.pt"), Scales())
    torch_models.save(write(repository, "adds", named + SHAPES + ON_GPU, "model.pt"), AddsInPlace())
    file = write(repository, "eager", 'backend: "pytorch"\n' + SHAPES + ON_GPU, "model.py")
    file.write_text(EAGER)
    torch.save({"factor": torch.tensor(2.0)}, file.with_suffix(".pt"))
    write_exported(repository, "exported", ON_GPU)


def write_exported(repository: Path, name: str, extra: str) -> None:
    """A program that doubles, exported on the processor."""
    outputs = tensor("RESULT__0", "TYPE_FP32", "3")
    text = f'platform: "torch_aoti" max_batch_size: 8 input [ {X} ] output [ {outputs} ]\n{extra}'
    rows = torch.export.Dim("rows", min=1, max=8)
    program = torch.export.export(Scales(), (torch.ones(2, 3),), dynamic_shapes={"x": {0: rows}})
    torch.export.save(program, write(repository, name, text, "model.pt2"))


def write_python(repository: Path) -> None:
    """``adds_in_thread`` takes tensors of a GPU, ``adds_in_process`` those of the processor; both return a GPU's."""
    text = 'backend: "python"\n' + SHAPES + ON_GPU
    write(repository, "adds_in_thread", text + IN_THREAD + STAYS, "model.py").write_text(PYTHON)
    write(repository, "adds_in_process", text, "model.py").write_text(PYTHON)


def write_onnx(repository: Path) -> None:
    """``onnx`` doubles."""
    onnx_models.save(
        write(repository, "onnx", 'backend: "onnxruntime"\n' + SHAPES + ON_GPU, "model.onnx"),
        [onnx_models.helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": ("FP32", ("N", 3))},
        {"y": ("FP32", ("N", 3))},
    )


def write_chain(repository: Path, name: str, *models: str) -> None:
    """An ensemble of models one behind the other."""
    given = ["IN", *(f"t{n}" for n in range(1, len(models))), "OUT"]
    result = {"exported": "RESULT__0", "script": "y", "adds": "y"}
    steps = [step(m, {"x": given[n]}, {result.get(m, "y"): given[n + 1]}) for n, m in enumerate(models)]
    ends = f"input [ {tensor('IN', 'TYPE_FP32', '3')} ] output [ {tensor('OUT', 'TYPE_FP32', '3')} ]"
    text = f'platform: "ensemble" max_batch_size: 8 {ends} ensemble_scheduling {{ step [ {", ".join(steps)} ] }}'
    write(repository, name, text, "none")
