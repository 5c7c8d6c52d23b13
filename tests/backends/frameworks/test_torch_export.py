"""The contract of framework backends for archives of ``torch.export``, run as they are: compiling takes too long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("torch.export.pt2_archive", reason="this torch writes archives of an older form")

from backends.contract import FrameworkContract, InstanceContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from naiad.tensor.dtypes import BY_WIRE  # noqa: E402
from support.framework import Framework, Pair, Signature, Tensor, damaged  # noqa: E402
from support.framework_server import framework_server  # noqa: E402

DAMAGED = r"model\.pt2 cannot be read as an archive of torch\.export: .*; it is damaged or cut short"
LOADING = threading.Lock()
DTYPES = {"BF16": "bfloat16", "FP16": "float16", "FP32": "float32", "FP64": "float64"}


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
    # torch takes one load at a time.
    with LOADING:
        return loaded(path)


@cache
def loaded(path: Path) -> Callable[..., Any]:
    module: Callable[..., Any] = torch.export.load(path).module()
    return module


def run(path: Path, inputs: Arrays) -> Arrays:
    with torch.inference_mode():
        return {"OUTPUT__0": module_of(path)(torch.from_numpy(inputs["INPUT__0"])).numpy()}


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    rows = batch()
    columns = [torch.export.Dim(f"columns_{i}", min=0) for i in range(len(pairs))]
    example = tuple(torch.zeros(2, 3, dtype=dtype(pair.wire)) for pair in pairs)
    save(path, Identity(), example, (tuple({0: rows, 1: count} for count in columns),))
    return Signature(
        tuple(Tensor(pair.input, pair.wire, (-1,)) for pair in pairs),
        tuple(Tensor(pair.output, pair.wire, (-1,)) for pair in pairs),
    )


def dtype(wire: str) -> Any:
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


class TestContract(FrameworkContract):
    framework = Framework(
        name="pytorch",
        config='platform: "torch_aoti" parameters { key: "COMPILE" value { string_value: "false" } }',
        file="model.pt2",
        network=network,
        run=run,
        broken=damaged(missing=r"model\.pt2 does not exist", empty=DAMAGED, garbage=DAMAGED, cut=DAMAGED),
        mismatches={
            "datatype": r"the configuration says TYPE_INT32, the model has TYPE_FP32",
            "dims": r"the configuration says \[-1,5\].*the model has \[-1,4\]",
        },
        identity=identity,
        datatypes=(tuple(w for w in BY_WIRE if w != "BYTES"),),
        odd_names=("größe", "a b", "in:0/x", "0", "_.-~", "名"),
        scalar=scalar,
        ragged=ragged,
        failing=failing,
        failure="torch: IndexError: index 99 is out of bounds",
        # The other modes take the same instances to processes, as they do with TorchScript.
        modes=("thread",),
        lacks={"wrong_name": "a lone input may have any name"},
    )

    @pytest.mark.slow
    def test_reloads_do_not_grow_the_server(self, mode: str, tmp_path: Path) -> None:
        """torch.export keeps some 20 KiB of each load for good, and its graphs until a full collection of garbage."""
        with framework_server(self.framework, mode, tmp_path, MALLOC_ARENA_MAX="1") as served:
            served.write("again", lambda path: network(path, 1, 16))

            def reload() -> int:
                served.load("again")
                served.unload("again")
                return served.memory_bytes()

            first = max(reload() for _ in range(20))
            last = min([reload() for _ in range(40)][-5:])
            assert last - first <= 40 * 256 * 1024


class TestInstance(InstanceContract):
    framework = TestContract.framework
