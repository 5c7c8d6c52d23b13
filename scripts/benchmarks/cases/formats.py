"""One network in all formats: what serving it costs beside the framework alone, in speed, memory and time to load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from .. import machine, report
from ..figures import Bound, CaseSkippedError, Figure
from ..formats.direct_caller import DirectCaller, called_directly, write_files
from ..formats.form import Format, Speed
from ..formats.served import Served, add_served, served, warmup_field
from ..formats.subjects import SUBJECTS, Subject
from ..formats.table import FORMATS
from ..infer import check_answer
from ..rounds import alternate, median, median_ratio
from ..settings import Settings

THREADS = 1
CALLERS = 2
MAXIMUM_ROUNDS = 3
SLICE = 1 / 3
MINIMUM_CALLS = 10
QUICK_SUBJECTS = ("dense", "trees", "trees_256")
# One for each framework.
QUICK_FORMATS = ("onnx", "torchscript", "tensorflow", "openvino", "xgboost")
LOADED_OFTEN = "resnet50"
MEMORY_MIB = {"thread": 40, "process": 60}
LOAD_RATIO = 1.1
PUBLISHED = "published, ResNet50 on one GPU: TensorFlow 150, ONNX 250, TensorRT 290 inferences/s"
HEADINGS = ("network", "format", "direct/s", "rate/s", "p50 ms", "p95 ms", "RSS MiB", "load s")


@dataclass(frozen=True, slots=True)
class Pair:
    """One network in one format, written to ``file``."""

    form: Format
    subject: Subject
    file: Path

    @property
    def name(self) -> str:
        """The beginning of its figures' names."""
        return f"formats_{self.subject.name}_{self.form.name}"


@dataclass(frozen=True, slots=True)
class Start:
    """One load in a fresh process, in seconds.

    Attributes:
        load: of the network, with the import of its framework.
        process: the same from the start of the process that loads it.
        first: of the first request or call.
    """

    load: float
    process: float
    first: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of one pair.

    Attributes:
        speeds: a list with an element for each round: of the framework alone (``direct``), of one caller (``one``) and
            of several in thread mode (``thread``), and of several in process mode (``process``).
        starts: by side: ``direct``, ``thread``, ``process``, and ``warm`` for thread mode with a warm-up.
        memory: resident bytes after all calls, by side.
    """

    speeds: Mapping[str, list[Speed]]
    starts: Mapping[str, list[Start]]
    memory: Mapping[str, int]


def measure(settings: Settings, *, names: Collection[str] = ()) -> Iterator[Figure]:
    """Figures of each network in each format whose framework and backend are here; then the main ones in one table.

    ``names``: only these networks; empty for all.
    """
    lacking = {form.name: form.lacking() for form in FORMATS}
    chosen = [form for form in FORMATS if not lacking[form.name]]
    left_out = [f"{name} is left out: there is no {module}" for name, module in lacking.items() if module]
    if not chosen:
        raise CaseSkippedError("; ".join(left_out))
    rows = [HEADINGS]
    for pair in written(settings, chosen, names):
        found = take(settings, pair)
        rows.append(row(pair, found))
        yield from figures(pair, found)
    print("\n".join((*lines(rows), PUBLISHED, *left_out)), flush=True)


def written(settings: Settings, forms: Sequence[Format], names: Collection[str] = ()) -> list[Pair]:
    """The pairs to measure, whose files are written by one process for each framework."""
    pairs = []
    for subject in (subject for subject in SUBJECTS if not names or subject.name in names):
        for form in forms:
            is_quick = subject.name in QUICK_SUBJECTS and form.name in QUICK_FORMATS
            if subject.name in form.networks and (is_quick or not settings.quick):
                folder = settings.work / "formats" / f"{subject.name}-{form.name}"
                folder.mkdir(parents=True)
                pairs.append(Pair(form, subject, folder / form.file))
    for framework in dict.fromkeys(pair.form.needs[0] for pair in pairs):
        write_files([(p.form, p.subject.name, p.file) for p in pairs if p.form.needs[0] == framework])
    return pairs


# ---- measuring one pair


def take(settings: Settings, pair: Pair) -> Found:
    """Load the pair on all sides, use these in turns, and load it anew where that is asked for."""
    with ExitStack() as stack:
        direct = stack.enter_context(directly(settings, pair))
        sides = {mode: stack.enter_context(on_server(settings, pair, mode)) for mode in ("thread", "process")}
        for side in sides.values():
            check_answer(side.server.port, side.request, pair.form.tensors[1], direct.answer)
        speeds = in_turns(settings, pair, direct, sides)
        memory = {"direct": direct.resident_bytes()} | {mode: side.resident_bytes() for mode, side in sides.items()}
        starts = {"direct": [start_of(direct)]} | {mode: [start_of(side)] for mode, side in sides.items()}
    if not settings.quick:
        starts["warm"] = [started(on_server(settings, pair, "warm"))]
        if pair.subject.name == LOADED_OFTEN:
            for _ in range(1, rounds(settings)):
                starts["direct"].append(started(directly(settings, pair)))
                starts["thread"].append(started(on_server(settings, pair, "thread")))
    return Found(speeds, starts, memory)


def in_turns(
    settings: Settings, pair: Pair, direct: DirectCaller, sides: Mapping[str, Served]
) -> dict[str, list[Speed]]:
    """The speeds of all sides, after each was warmed up."""
    seconds = settings.seconds * SLICE * pair.subject.share
    requests = max(MINIMUM_CALLS, round(direct.call(seconds).rate * seconds))
    for side in sides.values():
        side.call(CALLERS, requests)
    return alternate(
        rounds(settings),
        {
            "direct": partial(direct.call, seconds),
            "one": partial(sides["thread"].call, 1, requests),
            "thread": partial(sides["thread"].call, CALLERS, requests),
            "process": partial(sides["process"].call, CALLERS, requests),
        },
    )


def directly(settings: Settings, pair: Pair) -> AbstractContextManager[DirectCaller]:
    """The framework alone, in a fresh process."""
    return called_directly(pair.form, pair.subject.name, pair.file, THREADS, settings.work)


def on_server(settings: Settings, pair: Pair, mode: str) -> AbstractContextManager[Served]:
    """A fresh server with the network in one mode: ``thread``, ``process``, or ``warm`` for a thread and a warm-up."""
    repository = settings.work / "formats" / f"served-{pair.name}-{mode}"
    if not repository.exists():
        fields = {"warm": warmup_field(pair.form, pair.subject)}
        execution = f'parameters {{ key: "execution" value {{ string_value: "{mode}" }} }}'
        add_served(repository, pair.form, pair.subject, pair.file, THREADS, fields.get(mode, execution))
    return served(repository, settings.work, pair.form, pair.subject)


def started(side: AbstractContextManager[DirectCaller | Served]) -> Start:
    """One more start."""
    with side as running:
        return start_of(running)


def start_of(side: DirectCaller | Served) -> Start:
    """The start that was measured."""
    return Start(side.load_seconds, side.start_seconds, side.first_seconds)


def rounds(settings: Settings) -> int:
    """As many as the run has, but no more than a long list of pairs has time for."""
    return min(settings.rounds, MAXIMUM_ROUNDS)


# ---- what is printed


def figures(pair: Pair, found: Found) -> Iterator[Figure]:
    """The lines of the report for one pair."""
    yield from speed_figures(pair, found.speeds)
    alone = found.memory["direct"]
    for mode, name in (("thread", "memory"), ("process", "process_memory")):
        added = (found.memory[mode] - alone) / machine.MIB
        note = f"RSS of the process tree in {mode} mode, beyond {alone / machine.MIB:.0f} MiB of the framework alone"
        yield Figure(f"{pair.name}_{name}", added, "MiB", Bound("<=", MEMORY_MIB[mode]), note)
    yield from start_figures(pair, found.starts)


def speed_figures(pair: Pair, speeds: Mapping[str, list[Speed]]) -> Iterator[Figure]:
    """Rates, latencies and their ratios to the framework alone."""
    bound = None if pair.subject.least is None else Bound(">=", pair.subject.least)
    note = f"the framework in a loop, threads: {THREADS}"
    yield Figure(f"{pair.name}_direct", median(speeds["direct"], _rate), "calls/s", note=note)
    yield Figure(f"{pair.name}_rate", median(speeds["thread"], _rate), "requests/s", note=f"callers: {CALLERS}")
    if pair.subject.least_rows:
        rows = median(speeds["thread"], _rate) * pair.subject.shape[0]
        yield Figure(f"{pair.name}_rows", rows, "rows/s", Bound(">=", pair.subject.least_rows), "threads: 1")
    ratio = median_ratio(speeds["thread"], speeds["direct"], _rate)
    yield Figure(f"{pair.name}_ratio", ratio, "of direct", bound, f"callers: {CALLERS}, pair by pair")
    for name in ("one", "process"):
        ratio = median_ratio(speeds[name], speeds["direct"], _rate)
        note = "callers: 1" if name == "one" else f"callers: {CALLERS}, execution=process"
        yield Figure(f"{pair.name}_{name}_ratio", ratio, "of direct", note=note)
    yield Figure(f"{pair.name}_p50", median(speeds["one"], _p50_ms), "ms", note="callers: 1")
    yield Figure(f"{pair.name}_p95", median(speeds["one"], _p95_ms), "ms", note="callers: 1")


def start_figures(pair: Pair, starts: Mapping[str, list[Start]]) -> Iterator[Figure]:
    """Loads and first requests."""
    own, ours = starts["direct"], starts["thread"]
    bound = Bound("<=", LOAD_RATIO) if pair.subject.name == LOADED_OFTEN else None
    yield Figure(f"{pair.name}_load", median(ours, _load), "s", note=f"the framework alone: {median(own, _load):.2f} s")
    ratio = median_ratio(ours, own, _until_answer)
    yield Figure(f"{pair.name}_load_ratio", ratio, "of the framework's own", bound, "until the first answer")
    note = f"the framework alone, from the start of its process: {median(own, _process):.2f} s"
    yield Figure(f"{pair.name}_process_load", median(starts["process"], _load), "s", note=note)
    note = f"the framework alone: {median(own, _first_ms):.3g} ms"
    yield Figure(f"{pair.name}_first", median(ours, _first_ms), "ms", note=note)
    if "warm" in starts:
        yield Figure(f"{pair.name}_first_warm", median(starts["warm"], _first_ms), "ms", note="with model_warmup")


def row(pair: Pair, found: Found) -> tuple[str, ...]:
    """The line of the table for one pair, in thread mode."""
    speeds = found.speeds
    values = (
        median(speeds["direct"], _rate),
        median(speeds["thread"], _rate),
        median(speeds["one"], _p50_ms),
        median(speeds["one"], _p95_ms),
        found.memory["thread"] / machine.MIB,
        median(found.starts["thread"], _load),
    )
    note = f" ({pair.form.note})" if pair.form.note and pair.subject.name == "resnet50" else ""
    return (pair.subject.name, pair.form.name + note, *map(report.amount, values))


def lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """The table: names on the left, numbers on the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    return [
        "  ".join(cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (list(zip(row, widths, strict=True)) for row in rows)
    ]


def _rate(speed: Speed) -> float:
    return speed.rate


def _p50_ms(speed: Speed) -> float:
    return speed.p50_us / 1e3


def _p95_ms(speed: Speed) -> float:
    return speed.p95_us / 1e3


def _load(start: Start) -> float:
    return start.load


def _until_answer(start: Start) -> float:
    # Some backends run a network once while they load it, so that the first request need not wait for that.
    return start.load + start.first


def _process(start: Start) -> float:
    return start.process


def _first_ms(start: Start) -> float:
    return start.first * 1e3


PARTS: Final[Mapping[str, Callable[[Settings], Iterator[Figure]]]] = {
    f"formats_{subject.name}": partial(measure, names=(subject.name,)) for subject in SUBJECTS
}
"""The networks, each of which also runs alone."""
