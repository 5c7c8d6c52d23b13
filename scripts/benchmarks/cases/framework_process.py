"""Large tensors through a framework's model in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .. import models, python_models
from ..figures import Figure
from ..python_contest import Contest, contenders, measure
from ..settings import Settings
from .python_identity import IMAGE, TEN_MB

MODEL = "identity"


def image(settings: Settings) -> Iterator[Figure]:
    """600 KB each way."""
    return _measure(settings, "process_600kb", IMAGE)


def ten_megabytes(settings: Settings) -> Iterator[Figure]:
    """10 MB each way."""
    return _measure(settings, "process_10mb", TEN_MB)


def _measure(settings: Settings, title: str, values: int) -> Iterator[Figure]:
    """An ONNX network that gives its input back, beside a Python model of the reference that does the same.

    That is the reference's way to run a model in a process of its own.
    """
    ours, theirs = settings.work / title, settings.work / f"{title}-reference"
    add_network(ours)
    python_models.add_python_identity(theirs, MODEL)
    with contenders(settings, ours, their_repository=theirs) as servers:
        contest = Contest(title, MODEL, values, lambda x: x, {1: 3.0, 4: 3.0, 16: 3.0}, is_pinned=True)
        yield from measure(settings, servers, contest)


def add_network(repository: Path) -> None:
    """Add the network as ``MODEL``, run in a process."""
    version = models.add_model(
        repository,
        MODEL,
        'platform: "onnxruntime_onnx"',
        "max_batch_size: 64",
        models.tensor_field("input", "INPUT0", "TYPE_FP32", [-1]),
        models.tensor_field("output", "OUTPUT0", "TYPE_FP32", [-1]),
        "dynamic_batching { }",
        'parameters { key: "execution" value { string_value: "process" } }',
        models.one_instance(threads=1),
    )
    inputs = [("INPUT0", "FLOAT", ("rows", "values"))]
    nodes = [("Identity", ["INPUT0"], "OUTPUT0")]
    models.save_graph(version / "model.onnx", inputs, nodes, {}, "OUTPUT0", "values")
