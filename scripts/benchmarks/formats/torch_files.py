"""What torch serves: TorchScript, archives of torch.export, packages of AOTInductor, and modules in Python."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .form import Array, Caller, Format
from .subjects import SUBJECTS

NETWORKS = Path(__file__).with_name("networks.py")
CLASSES = {"resnet50": "ResNet50", "dense": "Dense"}


def write_script(network: str, path: Path) -> None:
    """Traced."""
    import torch

    module, sample = _made(network)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(module, sample), path)


def load_script(path: Path, threads: int) -> Caller:
    """The script's module."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _caller(torch.jit.load(path).eval(), threads)


def write_archive(network: str, path: Path) -> None:
    """By torch.export."""
    import torch

    torch.export.save(_exported(network), path)


def load_archive(path: Path, threads: int) -> Caller:
    """The module of the archive's program."""
    import torch

    return _caller(torch.export.load(path).module(), threads)


def write_package(network: str, path: Path) -> None:
    """Compiled by AOTInductor, which takes a compiler for C++."""
    import torch

    torch._inductor.aoti_compile_and_package(_exported(network), package_path=str(path))


def load_package(path: Path, threads: int) -> Caller:
    """The compiled program."""
    import torch

    return _caller(torch._inductor.aoti_load_package(str(path)), threads)


def write_source(network: str, path: Path) -> None:
    """The classes' source, and the weights beside it."""
    import torch

    shutil.copy(NETWORKS, path)
    torch.save(_made(network)[0].state_dict(), path.with_suffix(".pt"))


def load_source(path: Path, threads: int) -> Caller:
    """The class whose weights these are, with these weights."""
    import torch

    from . import networks

    weights = torch.load(path.with_suffix(".pt"))
    (found,) = (c for c in networks.CLASSES.values() if set(weights) == set(c().state_dict()))
    module = found()
    module.load_state_dict(weights)
    return _caller(module.eval(), threads)


def _made(network: str) -> tuple[Any, Any]:
    import torch

    from . import networks

    (sample,) = (torch.from_numpy(s.sample(SCRIPT)) for s in SUBJECTS if s.name == network)
    return networks.make(network), sample


def _exported(network: str) -> Any:
    import torch

    module, sample = _made(network)
    return torch.export.export(module, (sample,))


def _caller(module: Callable[[Any], Any], threads: int) -> Caller:
    import torch

    torch.set_num_threads(threads)

    def call(x: Array) -> Array:
        with torch.inference_mode():
            answer: Array = module(torch.from_numpy(x)).numpy()
        return answer

    return call


def _class_field(network: str) -> str:
    return f'parameters {{ key: "MODEL_CLASS" value {{ string_value: "{CLASSES[network]}" }} }}'


def _uncompiled_field(network: str) -> str:
    return 'parameters { key: "COMPILE" value { string_value: "false" } }'


SCRIPT = Format(
    "torchscript",
    needs=("torch",),
    file="model.pt",
    backend="pytorch",
    threads="INTRA_OP_THREAD_COUNT",
    networks=("resnet50", "dense", "bert_tiny"),
    write=write_script,
    load=load_script,
)
ARCHIVE = replace(
    SCRIPT,
    name="torch_export",
    needs=("torch", "naiad.backends.torch.exported"),
    file="model.pt2",
    networks=("resnet50", "dense"),
    write=write_archive,
    load=load_archive,
    fields=_uncompiled_field,
)
PACKAGE = replace(
    ARCHIVE,
    name="aot_inductor",
    needs=("torch", "naiad.backends.torch.aoti"),
    networks=("dense",),
    write=write_package,
    load=load_package,
    fields=lambda network: "",
)
EAGER = replace(
    SCRIPT,
    name="eager",
    needs=("torch", "naiad.backends.torch.eager"),
    file="model.py",
    networks=("resnet50", "dense"),
    write=write_source,
    load=load_source,
    fields=_class_field,
)
