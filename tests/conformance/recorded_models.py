"""The models that the recorded requests ask for, built from ONNX graphs and the identity backend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.served_models import SUM_AND_DIFFERENCE, tensor, write_model

TYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "FP32", "FP64", "STRING"),
)
LABELS = "cat\ndog\nbird\nfish\n"
FRONT_ENDS = (1, 2)
"""``--frontend-processes``: what callers get is the same."""
ONE_ON_THE_CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"


def write_repository(repository: Path) -> None:
    """Write every model."""
    _write_simple(repository, "simple")
    _write_simple(repository, "simple_versions", "version_policy { specific { versions: [ 1, 3 ] } }", (1, 2, 3))
    _write_simple(repository, "simple_latest2", "version_policy { latest { num_versions: 2 } }", (1, 2, 10))
    queue = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 100 }"
    _write_simple(repository, "simple_dyn", queue)
    _write_types(repository)
    _write_identity(repository, "bf16", "TYPE_BF16", "-1", names=("IN", "OUT"))
    _write_identity(repository, "echo", "TYPE_INT32", "-1", names=("IN", "OUT"))
    _write_identity(repository, "identity_fp32", "TYPE_FP32", "-1", 64, extra="dynamic_batching { }")
    _write_identity(repository, "identity_2d", "TYPE_FP32", "-1, 3")
    _write_identity(repository, "identity_bytes", "TYPE_STRING", "-1", 8)
    _write_identity(repository, "classify", "TYPE_FP32", "4", 8, labels=LABELS)
    _write_identity(repository, "reshape", "TYPE_FP32", "4", reshape="reshape { shape: [ 2, 2 ] }")
    _write_identity(repository, "scalar", "TYPE_FP32", "1", 8, reshape="reshape { shape: [ ] }")


def _write_simple(repository: Path, name: str, extra: str = "", versions: Sequence[int] = (1,)) -> None:
    inputs = ", ".join(tensor(f"INPUT{i}", "TYPE_INT32", "16") for i in (0, 1))
    outputs = ", ".join(tensor(f"OUTPUT{i}", "TYPE_INT32", "16") for i in (0, 1))
    config = f"""
        name: "{name}" backend: "onnxruntime" max_batch_size: 8
        input [ {inputs} ] output [ {outputs} ] {ONE_ON_THE_CPU} {extra}"""
    write_model(repository, name, config, versions, SUM_AND_DIFFERENCE)


def _write_identity(
    repository: Path,
    name: str,
    data_type: str,
    dims: str,
    max_batch_size: int = 0,
    extra: str = "",
    reshape: str = "",
    names: tuple[str, str] = ("INPUT0", "OUTPUT0"),
    labels: str = "",
) -> None:
    given, made = (tensor(n, data_type, dims, reshape) for n in names)
    if labels:
        made = tensor(names[1], data_type, dims, f'label_filename: "labels.txt" {reshape}')
    config = f"""
        name: "{name}" backend: "identity" max_batch_size: {max_batch_size}
        input [ {given} ] output [ {made} ] {ONE_ON_THE_CPU} {extra}"""
    folder = write_model(repository, name, config)
    if labels:
        (folder / "labels.txt").write_text(labels)


def _write_types(repository: Path) -> None:
    inputs = ", ".join(tensor(f"IN_{t}", f"TYPE_{t}", "-1", "optional: true") for t in TYPES)
    outputs = ", ".join(tensor(f"OUT_{t}", f"TYPE_{t}", "-1") for t in TYPES)
    write_model(
        repository,
        "types",
        f'name: "types" backend: "identity" max_batch_size: 0 input [ {inputs} ] output [ {outputs} ] {ONE_ON_THE_CPU}',
    )
