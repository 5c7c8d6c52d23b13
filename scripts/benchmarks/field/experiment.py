"""One experiment: a table of models and callers on one server, each row beside the published one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..figures import CaseError, Figure
from ..infer import Array, binary_request, check_answer
from ..model_load import measure_model, refuse_errors
from ..rounds import alternate, median
from ..servers import Server, naiad
from ..settings import Settings

WARM_UP_REQUESTS = 200


@dataclass(frozen=True, slots=True)
class Known:
    """One request to a model, and what its framework answers to it without a server."""

    inputs: Mapping[str, Array]
    output: str
    answer: Array


@dataclass(frozen=True, slots=True)
class ExperimentRow:
    """One row: so many callers of one model.

    Attributes:
        name: what the row is called in figures.
        published: inferences/s; None where nothing was published.
        published_p95_ms: the same for the latency.
    """

    name: str
    model: str
    callers: int
    published: float | None = None
    published_p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of one row.

    Attributes:
        rate: inferences/s.
        cpu_us: processor time of the server and its children for an inference.
        batch: the mean number of inferences that ran together.
    """

    rate: float
    p95_ms: float
    cpu_us: float
    batch: float


def measure(
    settings: Settings, title: str, rows: Sequence[ExperimentRow], add_models: Callable[[Path], Mapping[str, Known]]
) -> Iterator[Figure]:
    """The figures of an experiment; its rows are measured in turns, nothing is pinned.

    Args:
        title: how the names of all figures begin.
        add_models: writes the models into a repository; returns a request to each.

    Raises:
        CaseError: a model gave a wrong answer, or a request failed.
    """
    # By their row with most callers: batches of every size come up. TorchScript takes seconds for its first ones.
    busiest = {row.model: row for row in sorted(rows, key=lambda row: row.callers)}
    if settings.quick:
        rows = [rows[0], rows[-1]]
    with _served(settings, title, add_models) as server:
        for model in dict.fromkeys(row.model for row in rows):
            _take(server, busiest[model], "--request-count", WARM_UP_REQUESTS)
        window = ("-p", settings.seconds * 1000, "-r", 1)
        found = alternate(settings.rounds, {row.name: partial(_take, server, row, *window) for row in rows})
    for row in rows:
        yield from figures(title, row, found[row.name], rows[0], found[rows[0].name])


@contextmanager
def _served(settings: Settings, title: str, add_models: Callable[[Path], Mapping[str, Known]]) -> Iterator[Server]:
    """A server whose models have answered once, and well."""
    repository = settings.work / title
    known = add_models(repository)
    with naiad(repository, settings.work) as server:
        for model, one in known.items():
            check_answer(server.port, binary_request(model, one.inputs, one.output), one.output, one.answer)
        yield server


def _take(server: Server, row: ExperimentRow, *options: object) -> Observed:
    found = measure_model(server, row.model, "--concurrency-range", row.callers, *options)
    refuse_errors(found, f"{row.model} with {row.callers} callers")
    if found.server is None or not found.server.executions:
        raise CaseError(f"{row.model}: the server counted no inference")
    cpu_us = found.usage.cpu_us_per_request or 0.0
    batch = found.server.inferences / found.server.executions
    return Observed(found.request_rate, found.latency.percentile(95) / 1e6, cpu_us, batch)


def figures(
    title: str, row: ExperimentRow, found: Sequence[Observed], first: ExperimentRow, base: Sequence[Observed]
) -> Iterator[Figure]:
    """The lines of one row: its rate and its processor time, both also against the first row, and its p95."""
    name = f"{title}_{row.name}"
    rate, cpu_us = median(found, lambda o: o.rate), median(found, lambda o: o.cpu_us)
    scale = rate / median(base, lambda o: o.rate)
    yield Figure(name, rate, "infer/s", note=f"{scale:.2f} of the first row; {_published(row, first)}")
    share = cpu_us / median(base, lambda o: o.cpu_us)
    batch = median(found, lambda o: o.batch)
    yield Figure(
        f"{name}_cpu", share, "of the first row's CPU", note=f"{cpu_us:,.0f} us/inference, batches of {batch:.1f}"
    )
    note = f"published {row.published_p95_ms:g}" if row.published_p95_ms is not None else f"callers: {row.callers}"
    yield Figure(f"{name}_p95", median(found, lambda o: o.p95_ms), "ms", note=note)


def _published(row: ExperimentRow, first: ExperimentRow) -> str:
    if row.published is None:
        return "not published"
    if first.published is None:
        return f"published {row.published:g}"
    return f"published {row.published:g}, {row.published / first.published:.2f} of its first"
