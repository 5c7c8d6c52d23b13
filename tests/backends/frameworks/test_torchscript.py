"""The contract of framework backends for TorchScript models. ``test_pytorch.py`` has that of instances."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from backends.contract import FrameworkContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from naiad.tensor.dtypes import BY_WIRE  # noqa: E402
from support import torch_models  # noqa: E402
from support.exported_models import LookUp, Ragged  # noqa: E402
from support.framework import Framework, Pair, Signature, Tensor, damaged  # noqa: E402

NO_NAMES = "TorchScript says neither types nor shapes, and a lone input may have any name"
DAMAGED = r"torch cannot load \S+model\.pt: .*; the file is damaged, cut short or not a TorchScript file"


class Network(torch.nn.Module):
    """A layer of ``hidden`` units between 4 inputs and 3 outputs."""

    def __init__(self, seed: int, hidden: int) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.first = torch.nn.Parameter(torch.randn(4, hidden, generator=random))
        self.second = torch.nn.Parameter(torch.randn(hidden, 3, generator=random))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return torch.tanh(X @ self.first) @ self.second


class Double(torch.nn.Module):
    """Refuses all but a batch of scalars."""

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        assert X.dim() == 1
        return X * 2


def network(path: Path, seed: int, hidden: int) -> Signature:
    torch_models.save(path, Network(seed, hidden))
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def module_of(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.load(path)


def run(path: Path, inputs: Arrays) -> Arrays:
    with torch.inference_mode():
        return {"Y": module_of(path)(torch.from_numpy(inputs["X"])).numpy()}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    """Arguments are found by their order: the names of a configuration need not be Python's."""
    kinds = {pair.input: "List[str]" if pair.wire == "BYTES" else "torch.Tensor" for pair in pairs}
    given = ", ".join(f"x{i}: {kind}" for i, kind in enumerate(kinds.values()))
    values = ", ".join(f"x{i}" for i in range(len(pairs)))

    class Identity(torch.nn.Module):
        """A class for each model, since TorchScript compiles a class once."""

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.script(Identity())
        module.define(f"def forward(self, {given}):\n    return ({values},)\n")
        module.save(str(path))

    def tensor(name: str, wire: str) -> Tensor:
        # In a batch, a string is a row.
        return Tensor(name, wire, (1,) if wire == "BYTES" else (-1,))

    return Signature(
        tuple(tensor(pair.input, pair.wire) for pair in pairs), tuple(tensor(pair.output, pair.wire) for pair in pairs)
    )


def scalar(path: Path) -> Signature:
    torch_models.save(path, Double())
    more = "reshape { shape: [ ] }"
    return Signature((Tensor("X", "FP32", (1,), more),), (Tensor("Y", "FP32", (1,), more),))


def ragged(path: Path) -> None:
    torch_models.save(path, Ragged())


def failing(path: Path) -> Signature:
    torch_models.save(path, LookUp())
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = Framework(
        name="pytorch",
        config='platform: "pytorch_libtorch"',
        file="model.pt",
        network=network,
        run=run,
        pool_parameter="INTRA_OP_THREAD_COUNT",
        broken=damaged(missing=r"model\.pt does not exist", empty=DAMAGED, garbage=DAMAGED, cut=DAMAGED),
        auto_complete="the configuration must list the inputs and outputs",
        identity=identity,
        datatypes=(tuple(w for w in BY_WIRE if w not in ("BYTES", "UINT16", "UINT32", "UINT64")), ("BYTES",)),
        strings="text",
        odd_names=("größe", "a b", "in:0/x", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure="torch: RuntimeError: index 99 is out of bounds",
        slow_modes=("process", "shared"),
        others_not_in=("process",),
        reloads=(10, 30),
        lacks={"wrong_name": NO_NAMES, "wrong_datatype": NO_NAMES, "wrong_dims": NO_NAMES},
    )
