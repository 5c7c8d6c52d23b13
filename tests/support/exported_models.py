"""Tiny archives of ``torch.export`` as the contract of framework backends wants them. Importing this needs torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from naiad.backend_api.backend import Arrays
from naiad.tensor.dtypes import BY_WIRE
from support.framework import Pair, Signature, Tensor

LOADING = threading.Lock()
DTYPES = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
ODD_NAMES = ("größe", "a b", "in:0/x", "0", "_.-~", "名")
WIRES = tuple(wire for wire in BY_WIRE if wire != "BYTES")


def batch() -> Any:
    return torch.export.Dim("batch", min=0)


class Network(torch.nn.Module):
    """A layer of ``hidden`` units between 4 inputs and 3 outputs."""

    def __init__(self, seed: int, hidden: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.first = torch.nn.Parameter(torch.randn(4, hidden, generator=random))
        self.second = torch.nn.Parameter(torch.randn(hidden, 3, generator=random))

    def forward(self, INPUT__0: torch.Tensor) -> torch.Tensor:
        return torch.tanh(INPUT__0 @ self.first) @ self.second


class Identity(torch.nn.Module):
    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tensors


class Double(torch.nn.Module):
    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return X * 2


class Ragged(torch.nn.Module):
    def forward(self, X: torch.Tensor, I: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: E741
        return X * 2, I.unsqueeze(1)


class LookUp(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.tensor([10.0, 11.0, 12.0, 13.0]))

    def forward(self, INDEX: torch.Tensor) -> torch.Tensor:
        return self.table[INDEX]


def save(path: Path, module: torch.nn.Module, example: tuple[torch.Tensor, ...], dynamic: Any) -> None:
    torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=dynamic), path)


def network(path: Path, seed: int, hidden: int) -> Signature:
    save(path, Network(seed, hidden), (torch.zeros(2, 4),), ({0: batch()},))
    return Signature((Tensor("INPUT__0", "FP32", (4,)),), (Tensor("OUTPUT__0", "FP32", (3,)),))


def module_of(path: Path) -> Callable[..., Any]:
    """The program in an archive, run as it is."""
    # torch takes one load at a time.
    with LOADING:
        return _loaded(path)


@cache
def _loaded(path: Path) -> Callable[..., Any]:
    module: Callable[..., Any] = torch.export.load(path).module()
    return module


def run(path: Path, inputs: Arrays) -> Arrays:
    with torch.inference_mode():
        return {"OUTPUT__0": module_of(path)(torch.from_numpy(inputs["INPUT__0"])).numpy()}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    rows = batch()
    columns = [torch.export.Dim(f"columns_{i}", min=0) for i in range(len(pairs))]
    example = tuple(torch.zeros(2, 3, dtype=_dtype(pair.wire)) for pair in pairs)
    save(path, Identity(), example, (tuple({0: rows, 1: count} for count in columns),))
    return Signature(
        tuple(Tensor(pair.input, pair.wire, (-1,)) for pair in pairs),
        tuple(Tensor(pair.output, pair.wire, (-1,)) for pair in pairs),
    )


def _dtype(wire: str) -> Any:
    return getattr(torch, DTYPES.get(wire, wire.lower()))


def scalar(path: Path) -> Signature:
    save(path, Double(), (torch.zeros(2),), ({0: batch()},))
    more = "reshape { shape: [ ] }"
    return Signature((Tensor("X", "FP32", (1,), more),), (Tensor("Y", "FP32", (1,), more),))


def ragged(path: Path) -> None:
    dynamic = ({0: torch.export.Dim("n")}, {0: torch.export.Dim("b")})
    save(path, Ragged(), (torch.zeros(5), torch.zeros(2, dtype=torch.int32)), dynamic)


def failing(path: Path) -> Signature:
    save(path, LookUp(), (torch.zeros(2, 1, dtype=torch.int64),), ({0: batch()},))
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))
