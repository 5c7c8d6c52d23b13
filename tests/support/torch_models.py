"""Small TorchScript models, scripted and saved. Importing this needs torch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple  # noqa: UP035  TorchScript knows no others

import torch
from torch import Tensor, nn

Strings = List[str]  # noqa: UP006


def save(path: Path, module: nn.Module, *example: Tensor) -> Path:
    """Write ``module``, traced with ``example`` or else scripted; the path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = module.eval()
        made: Any = torch.jit.trace(module, example) if example else torch.jit.script(module)
        made.save(str(path))
    return path


class Echo(nn.Module):
    def forward(self, A: Tensor, B: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        return A, B


class EchoStrings(nn.Module):
    def forward(self, A: List[str], B: List[str]) -> Tuple[List[str], List[str]]:  # noqa: UP006
        return A, B


class OneString(nn.Module):
    def forward(self, A: List[str]) -> List[str]:  # noqa: UP006
        return [a + "!" for a in A]


class Subtract(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left - right


class Total(nn.Module):
    def forward(self, INPUT: Tensor, TOTAL: Tensor) -> Tuple[Tensor, Tensor]:  # noqa: UP006
        return INPUT + TOTAL, INPUT + TOTAL


class Scaled(nn.Module):
    def forward(self, x: Tensor, factor: float = 2.0, y: Optional[Tensor] = None) -> Tensor:  # noqa: UP045
        return x * factor if y is None else x * factor + y


class Dictionary(nn.Module):
    def forward(self, x: Dict[str, Tensor]) -> Dict[str, Tensor]:  # noqa: UP006
        return {"sum": x["a"] + x["b"], "difference": x["a"] - x["b"]}


class ManyTensors(nn.Module):
    def forward(self, x: Tensor) -> List[Tensor]:  # noqa: UP006
        return [x, x * 2, x * 3]


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x[:, 0] = 7
        return x + 0


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count += x.sum()
        return self.count


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            raise ValueError("this input is not liked")
        return torch.mm(x, x)


class ReturnsNumber(nn.Module):
    def forward(self, x: Tensor) -> int:
        return x.size(0)
