"""The two networks that all servers serve: a ResNet-50 of the usual size, and a dense one of about a millisecond."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..figures import CaseSkippedError
from ..infer import Array
from ..models import save_graph

SMALL_INPUTS = 512
SMALL_WIDTH = 1024
SMALL_LAYERS = 4
SMALL_OUTPUTS = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """A network in a file.

    Attributes:
        file: in ONNX, with a free number of rows.
        source: the name of its input.
        target: the name of its output.
        row: one row to send, FP32.
        scores: what ONNX Runtime answers to that row, FP32 [classes].
        call_ms: how long ONNX Runtime takes for a row on one thread.
    """

    name: str
    file: Path
    source: str
    target: str
    row: Array
    scores: Array
    call_ms: float


def make_subject(name: str, work: Path) -> Subject:
    """Write the network ``name`` below ``work`` and call it.

    Raises:
        CaseSkippedError: onnx or ONNX Runtime is not installed.
    """
    write, shape = SUBJECTS[name]
    folder = work / f"peers-{name}"
    file = folder / "model.onnx"
    if not folder.exists():
        folder.mkdir()
        write(file)
    return _called(name, file, shape)


def _write_resnet50(file: Path) -> None:
    from naiad.quickstart.catalog import MODELS
    from naiad.quickstart.write import QuickstartError, write_repository

    model = MODELS["resnet50_onnx"]
    try:
        write_repository(file.parent / "models", [model])
    except QuickstartError as error:
        raise CaseSkippedError(str(error)) from None
    (file.parent / "models" / model.name / "1" / "model.onnx").rename(file)


def _write_small(file: Path) -> None:
    random = np.random.default_rng(17)
    widths = [SMALL_INPUTS, *[SMALL_WIDTH] * SMALL_LAYERS, SMALL_OUTPUTS]
    weights: dict[str, Array] = {}
    nodes: list[tuple[str, list[str], str]] = []
    at = "x"
    for number, (rows, columns) in enumerate(itertools.pairwise(widths)):
        weights[f"w{number}"] = (random.standard_normal((rows, columns)) * np.sqrt(2 / rows)).astype(np.float32)
        last = number == len(widths) - 2
        nodes.append(("MatMul", [at, f"w{number}"], "y" if last else f"sum{number}"))
        if not last:
            nodes.append(("Relu", [f"sum{number}"], f"hidden{number}"))
        at = f"hidden{number}"
    save_graph(file, [("x", "FLOAT", ["rows", SMALL_INPUTS])], nodes, weights, "y")


SUBJECTS: dict[str, tuple[Callable[[Path], None], tuple[int, ...]]] = {
    "resnet50": (_write_resnet50, (3, 224, 224)),
    "small": (_write_small, (SMALL_INPUTS,)),
}


def _called(name: str, file: Path, shape: tuple[int, ...]) -> Subject:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    source, target = session.get_inputs()[0].name, session.get_outputs()[0].name
    row = np.random.default_rng(18).random(shape, np.float32)
    times = []
    for _ in range(10):
        began = time.perf_counter()
        (scores,) = session.run([target], {source: row[np.newaxis]})
        times.append(time.perf_counter() - began)
    return Subject(name, file, source, target, row, scores[0], float(np.median(times)) * 1000)
