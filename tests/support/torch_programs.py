"""Small models exported with ``torch.export``. Importing this needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BATCH = torch.export.Dim("batch", max=1024)


class Linear(nn.Module):
    """A layer between 4 inputs and 3 outputs; the same weights each time."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight)


class Nested(nn.Module):
    """Arguments by place and by name, and a result of dictionaries and tuples with a constant among them."""

    def forward(self, x: Tensor, y: Tensor, *, scale: Tensor) -> dict[str, Any]:
        return {"sum": (x + y) * scale, "more": (x - y, 7, y.to(torch.int64))}


class Guarded(nn.Module):
    """Takes two tensors of one variable length, and reads both to its end."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x + self.count


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2


class Scalar(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


def save(path: Path, module: nn.Module, *example: Tensor, dynamic: Any = None, **named: Tensor) -> Path:
    """Write the archive of ``module``; without ``dynamic`` all shapes are fixed."""
    program = torch.export.export(module.eval(), example, named, dynamic_shapes=dynamic)
    torch.export.save(program, path)
    return path


def linear(path: Path) -> Path:
    return save(path, Linear(), torch.zeros(2, 4), dynamic={"x": {0: BATCH}})


def nested(path: Path) -> Path:
    dynamic = {"x": {0: BATCH}, "y": {0: BATCH}, "scale": {0: BATCH}}
    return save(path, Nested(), torch.zeros(2, 3), torch.zeros(2, 3), scale=torch.zeros(2, 1), dynamic=dynamic)


def guarded(path: Path) -> Path:
    return save(path, Guarded(), torch.zeros(3), torch.zeros(3), dynamic={"x": {0: BATCH}, "y": {0: BATCH}})
