"""One measurement of a Python model: by perf_analyzer where there is one, else by `naiad perf`.

Nothing is pinned, since a Python model has two processes at work and the load is a third; ``pinned`` measures the same
by wrk (HTTP) and h2load (gRPC) on a core of their own. The processor time of the server's process tree is divided by
the number of inferences in the model's statistics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from . import load, machine, perf_analyzer
from .figures import CaseError
from .grpc_request import INFER, PREFIX_BYTES, ask_unary, check_infer, infer_message, placed_message
from .h2load import Fan, GrpcContender, logged_latencies, measure_grpc
from .infer import Array, Request, ask, ask_well, binary_request, check_answer, json_request
from .perf_analyzer import Question, Window
from .regions import ELEMENT_BYTES, INPUT_REGION, OUTPUT_REGION, check_region, forget_answer, parameters
from .rounds import alternate, percentile_us
from .servers import GRPC, HTTP, Server
from .settings import Settings

Wire = Literal["http", "grpc"]
SERVICES: Mapping[Wire, str] = {"http": HTTP, "grpc": GRPC}
WARM_UP_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """Inferences per second, their latencies in us, and the server's processor time of one in us."""

    rate: float
    p50_us: float
    p99_us: float
    cpu_us: float


class LoadTool(Protocol):
    """What asks one question again and again for some seconds.

    Attributes:
        name: of the program, as the figures show it.
    """

    name: str

    def put(self, server: Server, question: Question, callers: int, seconds: int) -> Window:
        """What came of ``callers`` that repeat ``question`` at once, at the port of ``server``."""


class PerfAnalyzer:
    """The official perf_analyzer."""

    name = "perf_analyzer"

    def __init__(self, command: Sequence[str], work: Path) -> None:
        self.command = command
        self.work = work

    def put(self, server: Server, question: Question, callers: int, seconds: int) -> Window:
        """Its own figures, taken over windows in which they are steady."""
        return perf_analyzer.observe(self.command, server, question, callers, seconds, self.work)


class NaiadPerf(PerfAnalyzer):
    """`naiad perf`, which takes the same options and writes the same table."""

    name = "naiad perf"

    def __init__(self, work: Path) -> None:
        super().__init__(perf_analyzer.NAIAD_PERF, work)


class HttpCallers:
    """wrk, or the built-in callers where it is missing."""

    def __init__(self, work: Path, *, pin: bool = False) -> None:
        self.name = load.generator()
        self.work = work
        self.pin = pin

    def put(self, server: Server, question: Question, callers: int, seconds: int) -> Window:
        """The figures of as many connections."""
        seen = load.measure(server, http_request(question), callers, seconds, self.work, pin=self.pin)
        return Window(seen.rate, seen.p50_us, seen.p95_us, seen.p99_us)


class GrpcCallers:
    """h2load with one call at a time on each connection."""

    name = "h2load"

    def __init__(self, work: Path, *, pin: bool = False) -> None:
        self.work = work
        self.pin = pin
        self.answer_bytes: dict[tuple[int, Question], int] = {}

    def put(self, server: Server, question: Question, callers: int, seconds: int) -> Window:
        """The figures of as many connections; the latencies are those in its log."""
        message, log = grpc_message(question), self.work / f"h2load-{time.monotonic_ns()}.log"
        contender = GrpcContender(server, message, self._answer_bytes(server, question, message))
        seen = measure_grpc(contender, Fan(callers, 1), seconds, self.work, pin=self.pin, log=log)
        latencies = logged_latencies(log)
        return Window(seen.rate, *(percentile_us(latencies, share) for share in (0.5, 0.95, 0.99)))

    def _answer_bytes(self, server: Server, question: Question, message: bytes) -> int:
        key = server.port, question
        if key not in self.answer_bytes:
            self.answer_bytes[key] = PREFIX_BYTES + len(ask_unary(server.port, INFER, message))
        return self.answer_bytes[key]


def load_tool(settings: Settings) -> LoadTool:
    """perf_analyzer if the run has one, else `naiad perf`."""
    if (tool := perf_analyzer.named_tool(settings)) is not None:
        return PerfAnalyzer((str(tool),), settings.work)
    return NaiadPerf(settings.work)


def values(question: Question) -> Array:
    """The row that a question carries: FP32 [1, values]."""
    return np.random.default_rng(0).random((1, question.values), np.float32)


def http_request(question: Question) -> Request:
    """A question over HTTP; one in regions names those of ``regions``."""
    if question.in_regions:
        size = ELEMENT_BYTES * question.values
        given = {"name": "INPUT0", "shape": [1, question.values], "datatype": "FP32"}
        asked = {"name": "OUTPUT0", "parameters": parameters(OUTPUT_REGION, size)}
        header = {"inputs": [given | {"parameters": parameters(INPUT_REGION, size)}], "outputs": [asked]}
        return json_request(question.model, header)
    return binary_request(question.model, {"INPUT0": values(question)}, "OUTPUT0")


def grpc_message(question: Question) -> bytes:
    """A question over gRPC; one in regions names those of ``regions``."""
    if question.in_regions:
        size = ELEMENT_BYTES * question.values
        places = parameters(INPUT_REGION, size), parameters(OUTPUT_REGION, size)
        return placed_message(question.model, ("INPUT0", (1, question.values)), "OUTPUT0", *places)
    return infer_message(question.model, {"INPUT0": values(question)}, "OUTPUT0")


def check(server: Server, question: Question, expected: Array) -> None:
    """Ask once by a client that reads the answer; the regions of a question that names some are registered.

    Raises:
        CaseError: it is not the expected one.
    """
    if question.in_regions:
        forget_answer()
        if question.protocol == "http":
            ask_well(server.at(HTTP).port, http_request(question))
        else:
            ask_unary(server.at(GRPC).port, INFER, grpc_message(question))
        check_region(expected, server.name)
    elif question.protocol == "http":
        check_answer(server.at(HTTP).port, http_request(question), "OUTPUT0", expected)
    else:
        check_infer(server.at(GRPC).port, grpc_message(question), "OUTPUT0", expected)


def inferences(server: Server, model: str) -> int:
    """How many inferences a model has answered well so far, as its statistics say.

    Raises:
        CaseError: the server does not say.
    """
    status, _, body = ask(server.at(HTTP).port, Request(f"/v2/models/{model}/stats", {}, b"", method="GET"))
    if status != 200:
        raise CaseError(f"{server.name} answered {status} to a question for the statistics of {model}: {body[:500]!r}")
    return sum(int(version["inference_stats"]["success"]["count"]) for version in json.loads(body)["model_stats"])


def take(tool: LoadTool, server: Server, question: Question, callers: int, seconds: int) -> Sample:
    """One measurement.

    Raises:
        CaseError: it failed, or the server's statistics do not know of it.
    """
    count, cpu = inferences(server, question.model), machine.cpu_seconds(server.pid)
    seen = tool.put(server.at(SERVICES[question.protocol]), question, callers, seconds)
    cpu = machine.cpu_seconds(server.pid) - cpu
    count = inferences(server, question.model) - count
    if count < 1:
        raise CaseError(f"{server.name} counted no inferences of {question.model} while {tool.name} saw {seen.rate}/s")
    return Sample(seen.rate, seen.p50_us, seen.p99_us, cpu / count * 1e6)


def compare(
    settings: Settings, tool: LoadTool, servers: dict[str, Server], question: Question, callers: int
) -> dict[str, list[Sample]]:
    """Measure the servers in alternating rounds, after one second of warm-up each."""
    measures: dict[str, Callable[[], Sample]] = {}
    for name, server in servers.items():
        take(tool, server, question, callers, WARM_UP_SECONDS)
        measures[name] = partial(take, tool, server, question, callers, settings.seconds)
    return alternate(settings.rounds, measures)
