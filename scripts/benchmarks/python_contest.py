"""Python models on Naiad and, where the run has one, on the reference server, in turns: rates, latencies and costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from . import machine
from .figures import Bound, Figure
from .infer import Array
from .perf_analyzer import Question
from .pinned import compare_pinned, light_tool
from .python_load import SERVICES, Sample, check, compare, load_tool, values
from .rounds import median, median_ratio
from .servers import GRPC, Server, naiad, reference
from .settings import Settings

OURS, THEIRS = "naiad", "reference"


@dataclass(frozen=True, slots=True)
class Contest:
    """What is measured on one model.

    Attributes:
        title: what the figures' names begin with.
        model: its name.
        values: how many FP32 values a request carries.
        answer: gives the right answer to one.
        wanted: how many times the rate of the reference ours should be, by the number of callers.
        in_regions: tensors lie in shared memory.
        is_pinned: the same is measured once more with the servers on one core and a light load on another (``pinned``).
    """

    title: str
    model: str
    values: int
    answer: Callable[[Array], Array]
    wanted: Mapping[int, float]
    in_regions: bool = False
    is_pinned: bool = False


@contextmanager
def contenders(
    settings: Settings,
    repository: Path,
    options: Sequence[str] = (),
    theirs: Sequence[str] = (),
    their_repository: Path | None = None,
) -> Iterator[dict[str, Server]]:
    """Naiad with ``options`` and the reference server with ``theirs``, if the run has it.

    Both are on ``repository``, unless the reference has one of its own. Nothing is pinned.
    """
    with ExitStack() as stack:
        servers = {OURS: stack.enter_context(naiad(repository, settings.work, options=options, service=GRPC))}
        if settings.reference is not None:
            servers[THEIRS] = stack.enter_context(
                reference(settings.reference, their_repository or repository, settings.work, theirs)
            )
        yield servers


def measure(settings: Settings, servers: dict[str, Server], contest: Contest) -> Iterator[Figure]:
    """The figures of a contest over HTTP and over gRPC."""
    for protocol in SERVICES:
        question = Question(contest.model, contest.values, protocol, contest.in_regions)
        tool = load_tool(settings)
        for server in servers.values():
            check(server, replace(question, in_regions=False), contest.answer(values(question)))
        for callers, wanted in contest.wanted.items():
            samples = compare(settings, tool, servers, question, callers)
            yield from figures(f"{contest.title}_{protocol}_{callers}", tool.name, samples, Bound(">=", wanted))
        if contest.is_pinned and machine.can_pin():
            yield from _pinned(settings, servers, contest, question)


def _pinned(settings: Settings, servers: dict[str, Server], contest: Contest, question: Question) -> Iterator[Figure]:
    expected = contest.answer(values(question))
    name = light_tool(settings, question.protocol).name
    for callers, samples in compare_pinned(settings, servers, question, expected, tuple(contest.wanted)):
        title = f"{contest.title}_{question.protocol}_{callers}_pinned"
        yield from figures(title, f"{name}, on a core of its own", samples, Bound(">=", contest.wanted[callers]))


def figures(
    name: str, tool: str, samples: dict[str, list[Sample]], wanted: Bound | None = None, saved: Bound | None = None
) -> Iterator[Figure]:
    """The lines of the table for one protocol and one number of callers.

    ``wanted`` and ``saved``: how the rate of the reference is to be exceeded, and its processor time undercut.
    """
    ours = samples[OURS]
    yield from _side(name, ours, f"by {tool}")
    if theirs := samples.get(THEIRS):
        yield from _side(f"{name}_reference", theirs, "the reference server")
        yield Figure(f"{name}_ratio", median_ratio(ours, theirs, _rate), "of its rate", wanted, "pair by pair")
        yield Figure(f"{name}_saved", median_ratio(theirs, ours, _cpu_us), "times cheaper", saved, "pair by pair")


def _side(name: str, samples: list[Sample], note: str) -> Iterator[Figure]:
    yield Figure(f"{name}_rate", median(samples, _rate), "requests/s", note=note)
    yield Figure(f"{name}_p50", median(samples, lambda sample: sample.p50_us), "us")
    yield Figure(f"{name}_p99", median(samples, lambda sample: sample.p99_us), "us")
    yield Figure(f"{name}_cpu", median(samples, _cpu_us), "CPU us/request", note="server and children")


def _rate(sample: Sample) -> float:
    return sample.rate


def _cpu_us(sample: Sample) -> float:
    return sample.cpu_us
