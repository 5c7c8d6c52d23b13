"""Models on ONNX Runtime with the accelerator ``openvino`` and without it, in the same environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np

from .. import models
from ..closed_loop import Call, expect_status
from ..figures import CaseSkippedError, Figure
from ..formats.direct_caller import write_files
from ..formats.onnx_files import ONNX
from ..formats.served import Served, add_served, served
from ..formats.subjects import DENSENET, SUBJECTS, Subject
from ..infer import HEADER_LENGTH, Array, ask_well, binary_request, check_answer, read_outputs
from ..rounds import alternate, median, median_ratio
from ..servers import naiad
from ..settings import Settings
from . import growth

PYTHON = "NAIAD_OPENVINO_PYTHON"
NETWORKS = ("resnet50", "densenet121", "bert_tiny")
ACCELERATED = 'optimization { execution_accelerators { cpu_execution_accelerator : [ {name : "openvino"}] } }'
FIELDS = {"plain": "", "openvino": ACCELERATED}
THREADS = 1
MINIMUM_CALLS = 10
GROWTH_REQUESTS = 100_000
QUICK_GROWTH_REQUESTS = 2_000
MOST_ROWS = 8


def measure(settings: Settings) -> Iterator[Figure]:
    """Every part, one after another; of the networks the smallest alone for a quick run."""
    for name, part in PARTS.items():
        if not settings.quick or not name.endswith(NETWORKS[:-1]):
            yield from part(settings)


def network(settings: Settings, *, name: str) -> Iterator[Figure]:
    """Rates of one caller and times to load, of one network plain and accelerated."""
    python = interpreter()
    if lacking := ONNX.lacking():
        raise CaseSkippedError(f"there is no {lacking}")
    (subject,) = (subject for subject in (*SUBJECTS, DENSENET) if subject.name == name)
    yield from compare(settings, subject, python)


def grown(settings: Settings) -> Iterator[Figure]:
    """The slope of resident memory of a server with an accelerated network in a process, over batches of all sizes."""
    python, repository = interpreter(), settings.work / "accelerators-growth"
    models.add_mlp(repository)
    with (repository / "mlp" / "config.pbtxt").open("a") as config:
        config.write("\n".join((*in_process(python), ACCELERATED)))
    requests = [binary_request("mlp", {"x": np.full((n, 16), n, np.float32)}, "y") for n in range(1, MOST_ROWS + 1)]
    calls = [Call("infer", request.wire(), expect_status(200)) for request in requests]
    total = QUICK_GROWTH_REQUESTS if settings.quick else GROWTH_REQUESTS
    with naiad(repository, settings.work, options=cache(settings)) as server:
        counts, sizes = growth.sample(server, cycle(calls), total)
    yield from growth.figures("accelerators_growth", settings, counts, sizes, "requests, server and process")


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
    add_served(repository, ONNX, subject, file, THREADS, *in_process(python), FIELDS[name])
    return served(repository, settings.work, ONNX, subject, cache(settings))


def in_process(python: str) -> list[str]:
    """The fields for instances in processes of that environment."""
    return [
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in (("execution", "process"), ("python", python))
    ]


def cache(settings: Settings) -> list[str]:
    """The option that keeps what is built in the folder of this run."""
    return [f"--backend-config=onnxruntime,accelerator-cache={settings.work / 'accelerators' / 'cache'}"]


def answer(side: Served) -> Array:
    """What a network answers."""
    headers, body = ask_well(side.server.port, side.request)
    return read_outputs(body, int(headers[HEADER_LENGTH.lower()]))["y"]


def rate(side: Served, requests: int) -> float:
    """Answers a second to one caller."""
    return side.call(1, requests).rate


PARTS: Final[Mapping[str, Callable[[Settings], Iterator[Figure]]]] = {
    **{f"accelerators_{name}": partial(network, name=name) for name in NETWORKS},
    "accelerators_growth": grown,
}
"""The parts of the case, each of which also runs alone, in less than six minutes on two cores."""
