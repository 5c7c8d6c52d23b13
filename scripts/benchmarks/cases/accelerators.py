"""Models on ONNX Runtime with the accelerator ``openvino`` and without it, in the same environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from ..figures import CaseSkippedError, Figure
from ..formats.direct_caller import write_files
from ..formats.onnx_files import ONNX
from ..formats.served import Served, add_served, served
from ..formats.subjects import SUBJECTS, Subject
from ..infer import HEADER_LENGTH, Array, ask_well, check_answer, read_outputs
from ..rounds import alternate, median, median_ratio
from ..settings import Settings

PYTHON = "NAIAD_OPENVINO_PYTHON"
NETWORKS = ("resnet50", "bert_tiny")
ACCELERATED = 'optimization { execution_accelerators { cpu_execution_accelerator : [ {name : "openvino"}] } }'
FIELDS = {"plain": "", "openvino": ACCELERATED}
THREADS = 1
MINIMUM_CALLS = 10


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates of one caller and times to load, of each network plain and accelerated."""
    python = interpreter()
    if lacking := ONNX.lacking():
        raise CaseSkippedError(f"there is no {lacking}")
    for subject in SUBJECTS:
        if subject.name in NETWORKS and (subject.name == NETWORKS[-1] or not settings.quick):
            yield from compare(settings, subject, python)


def interpreter() -> str:
    """The Python of an environment with onnxruntime-openvino."""
    own = Path(sys.prefix) / "onnxruntime-openvino" / "bin" / "python"
    found = os.environ.get(PYTHON, str(own))
    if not Path(found).is_file():
        raise CaseSkippedError(f"there is no environment with onnxruntime-openvino; {PYTHON} may name its Python")
    return found


def compare(settings: Settings, subject: Subject, python: str) -> Iterator[Figure]:
    """The figures of one network."""
    folder = settings.work / "accelerators" / subject.name
    folder.mkdir(parents=True)
    file = folder / ONNX.file
    write_files([(ONNX, subject.name, file)])
    with ExitStack() as stack:
        sides = {name: stack.enter_context(on_server(settings, subject, name, python, file)) for name in FIELDS}
        plain, fast = sides["plain"], sides["openvino"]
        check_answer(fast.server.port, fast.request, "y", answer(plain))
        requests = max(MINIMUM_CALLS, round(plain.call(1, MINIMUM_CALLS).rate * settings.seconds))
        fast.call(1, MINIMUM_CALLS)
        rates = alternate(settings.rounds, {name: partial(rate, side, requests) for name, side in sides.items()})
    name = f"accelerators_{subject.name}"
    for side, found in rates.items():
        yield Figure(f"{name}_{side}", median(found, float), "requests/s", note=f"callers: 1, threads: {THREADS}")
        yield Figure(f"{name}_{side}_load", sides[side].load_seconds, "s", note="a process that imports the framework")
    ratio = median_ratio(rates["openvino"], rates["plain"], float)
    yield Figure(f"{name}_ratio", ratio, "of plain", note="pair by pair")


def on_server(
    settings: Settings, subject: Subject, name: str, python: str, file: Path
) -> AbstractContextManager[Served]:
    """A fresh server with the network in a process of that environment."""
    repository = settings.work / "accelerators" / f"served-{subject.name}-{name}"
    cache = settings.work / "accelerators" / "cache"
    parameters = [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in (("execution", "process"), ("python", python))
    ]
    add_served(repository, ONNX, subject, file, THREADS, *parameters, FIELDS[name])
    return served(repository, settings.work, ONNX, subject, [f"--backend-config=onnxruntime,accelerator-cache={cache}"])


def answer(side: Served) -> Array:
    """What a network answers."""
    headers, body = ask_well(side.server.port, side.request)
    return read_outputs(body, int(headers[HEADER_LENGTH.lower()]))["y"]


def rate(side: Served, requests: int) -> float:
    """Answers a second to one caller."""
    return side.call(1, requests).rate
