"""The contract of framework backends for classes of ``torch.nn.Module``, with their weights in a file beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from backends.contract import FrameworkContract, InstanceContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from naiad.tensor.dtypes import BY_WIRE  # noqa: E402
from support.framework import Damage, Framework, Pair, Signature, Tensor, cut, damaged  # noqa: E402

# The contract of TorchScript, which is the same backend, runs with --fast too.
pytestmark = pytest.mark.slow

NO_NAMES = "a class of Python says neither types nor shapes, and a lone input may have any name"
NETWORK = """
import torch

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Parameter(torch.empty(4, {hidden}))
        self.second = torch.nn.Parameter(torch.empty({hidden}, 3))

    def forward(self, X):
        return torch.tanh(X @ self.first) @ self.second
"""
IDENTITY = """
import torch

class Identity(torch.nn.Module):
    def forward(self, {arguments}) -> {returns}:
        return {values}
"""
DOUBLE = """
import torch

class Double(torch.nn.Module):
    def forward(self, X):
        assert X.dim() == 1
        return X * 2
"""
RAGGED = """
import torch

class Ragged(torch.nn.Module):
    def forward(self, X, I):
        return X * 2, I.unsqueeze(1)
"""
LOOK_UP = """
import torch

class LookUp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.empty(4))

    def forward(self, INDEX):
        return self.table[INDEX]
"""


def network(path: Path, seed: int, hidden: int) -> Signature:
    random = torch.Generator().manual_seed(seed)
    weights = {
        "first": torch.randn(4, hidden, generator=random),
        "second": torch.randn(hidden, 3, generator=random),
    }
    path.write_text(NETWORK.format(hidden=hidden))
    torch.save(weights, path.with_suffix(".pt"))
    return Signature((Tensor("X", "FP32", (4,)),), (Tensor("Y", "FP32", (3,)),))


@cache
def module_of(path: Path) -> Any:
    names: dict[str, Any] = {}
    exec(path.read_text(), names)
    module = names["Network"]().eval()
    module.load_state_dict(torch.load(path.with_suffix(".pt"), weights_only=True))
    return module


def run(path: Path, inputs: Arrays) -> Arrays:
    with torch.inference_mode():
        return {"Y": module_of(path)(torch.from_numpy(inputs["X"])).numpy()}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    """Arguments are found by their order: the names of a configuration need not be Python's."""
    names = [f"x{i}" for i in range(len(pairs))]
    kinds = ["list[str]" if pair.wire == "BYTES" else "torch.Tensor" for pair in pairs]
    source = IDENTITY.format(
        arguments=", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True)),
        returns=kinds[0] if len(pairs) == 1 else "tuple",
        values=", ".join(names),
    )
    path.write_text(source)

    def tensor(name: str, wire: str) -> Tensor:
        # In a batch, a string is a row.
        return Tensor(name, wire, (1,) if wire == "BYTES" else (-1,))

    return Signature(
        tuple(tensor(pair.input, pair.wire) for pair in pairs), tuple(tensor(pair.output, pair.wire) for pair in pairs)
    )


def scalar(path: Path) -> Signature:
    path.write_text(DOUBLE)
    more = "reshape { shape: [ ] }"
    return Signature((Tensor("X", "FP32", (1,), more),), (Tensor("Y", "FP32", (1,), more),))


def ragged(path: Path) -> None:
    path.write_text(RAGGED)


def failing(path: Path) -> Signature:
    path.write_text(LOOK_UP)
    torch.save({"table": torch.tensor([10.0, 11.0, 12.0, 13.0])}, path.with_suffix(".pt"))
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = Framework(
        name="pytorch",
        config='backend: "pytorch"',
        file="model.py",
        network=network,
        run=run,
        pool_parameter="INTRA_OP_THREAD_COUNT",
        broken={
            **damaged(
                missing=r"model\.pt: .*holds no program; put model\.py with the model's class beside it",
                empty=r"model\.py has none, expected one class of torch\.nn\.Module, found none",
                garbage=r"model\.py cannot be imported: SyntaxError",
                cut=r"model\.py cannot be imported: SyntaxError",
            ),
            "weights": Damage(lambda path: cut(path.with_suffix(".pt")), r"model\.pt cannot be read as weights alone"),
            "no_weights": Damage(
                lambda path: path.with_suffix(".pt").unlink(),
                r"Network has 2 weights, and there is neither model\.safetensors nor model\.pt in ",
            ),
        },
        auto_complete=r"a class of Python does not say .* input \[ \{ name: \"X\"",
        identity=identity,
        datatypes=(tuple(w for w in BY_WIRE if w not in ("BYTES", "UINT16", "UINT32", "UINT64")), ("BYTES",)),
        strings="text",
        odd_names=("größe", "a b", "in:0/x", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure="torch: IndexError: index 99 is out of bounds",
        brief_modes=("process",),
        others_not_in=("process",),
        reloads=(5, 30),
        lacks={"wrong_name": NO_NAMES, "wrong_datatype": NO_NAMES, "wrong_dims": NO_NAMES},
    )


class TestInstance(InstanceContract):
    framework = TestContract.framework
