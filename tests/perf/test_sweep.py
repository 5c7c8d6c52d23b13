"""The runs of ``--sweep``, and the table over them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.cli.perf import perf
from naiad.perf.options.parse import parse_perf
from naiad.perf.report.sweep_table import SweepRun, sweep_table
from naiad.perf.results import LevelResult, LoadLevel, LoadMode, Report, Window
from naiad.perf.settings import PerfSettings
from naiad.perf.sweep import sweep_points
from naiad.testing import serving
from support import served_models


def points(*words: str) -> list[tuple[dict[str, tuple[int, ...]], int]]:
    """Shapes and batch size of each run."""
    return [(p.input.shapes, p.input.batch_size) for p in sweep_points(parse_perf(["-m", "x", *words], {}))]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), [({}, 1)]),
        (("-b", "4"), [({}, 4)]),
        (("--sweep", "batch=1,2"), [({}, 1), ({}, 2)]),
        (("-b", "4", "--sweep", "shape=A:3x4,A:5"), [({"A": (3, 4)}, 4), ({"A": (5,)}, 4)]),
        (
            ("--sweep", "shape=A:3,A:5,batch=1,8"),
            [({"A": (3,)}, 1), ({"A": (3,)}, 8), ({"A": (5,)}, 1), ({"A": (5,)}, 8)],
        ),
        (("--sweep", "shape=16"), [({"": (16,)}, 1)]),
        (("--shape", "A:1", "--shape", "B:2", "--sweep", "shape=B:3+C:4"), [({"A": (1,), "B": (3,), "C": (4,)}, 1)]),
    ],
)
def test_a_run_for_each_combination(
    words: tuple[str, ...], expected: list[tuple[dict[str, tuple[int, ...]], int]]
) -> None:
    assert points(*words) == expected


def test_a_run_has_no_sweep_of_its_own() -> None:
    settings = parse_perf(["-m", "x", "--sweep", "batch=1,2", "--percentile=95"], {})
    for point in sweep_points(settings):
        assert (point.sweep, point.measure, point.load) == ({}, settings.measure, settings.load)


def level(value: float, batch_size: int, latency_us: int, count: int, **more: Any) -> LevelResult:
    """A level of one second whose requests all took as long."""
    window = Window(0, 1_000_000_000, count, errors=Counter(more.pop("errors", {})))
    window.latency.add_all(np.full(count, latency_us * 1000, np.int64))
    return LevelResult(LoadLevel(more.pop("mode", LoadMode.CONCURRENCY), value), batch_size, window, **more)


def runs(*words: str, levels: list[list[LevelResult]]) -> list[SweepRun]:
    """The runs of a sweep with their levels."""
    found = sweep_points(parse_perf(["-m", "x", *words], {}))
    return [SweepRun(point, Report(some)) for point, some in zip(found, levels, strict=True)]


def test_the_table_has_a_line_for_each_level() -> None:
    levels = [[level(1, 1, 2000, 500), level(2, 1, 2500, 800)], [level(1, 8, 5000, 200), level(2, 8, 9000, 210)]]
    found = runs("--sweep", "shape=A:3x4,batch=1,8", "--concurrency-range=1:2", levels=levels)
    assert sweep_table(found) == (
        "Shape  Batch  Concurrency  Inferences/Second  Avg latency  p50 latency  p95 latency  p99 latency\n"
        "A:3,4      1            1                500         2000         2000         2000         2000\n"
        "A:3,4      1            2                800         2500         2500         2500         2500\n"
        "A:3,4      8            1               1600         5000         5000         5000         5000\n"
        "A:3,4      8            2               1680         9000         9000         9000         9000\n"
        "\n"
        "Most inferences a second: 1680 with shape A:3,4, batch size 8, concurrency 2\n"
        "Least p95 latency: 2000 usec with shape A:3,4, batch size 1, concurrency 1\n"
    )


def test_what_is_wrong_with_a_level_stands_behind_it() -> None:
    unstable = level(1, 1, 2000, 500, unstable_reason="rate by 20%", errors={("HTTP 500", "x"): 3})
    [run] = runs(levels=[[unstable]])
    lines = sweep_table([run, SweepRun(run.settings, problem="no such model")]).splitlines()
    assert re.fullmatch(r"model +1 +1 +500( +2000){4}  unstable: rate by 20%, 3 errors", lines[1])
    assert re.fullmatch(r"model +1  failed: no such model", lines[2])
    assert len(lines) == 3


def test_an_asked_percentile_is_shown() -> None:
    [run] = runs("--percentile=90", levels=[[level(1, 1, 2000, 500), level(2, 1, 1000, 500)]])
    head, *_, least = sweep_table([run]).splitlines()
    assert "p50 latency  p90 latency  p95 latency" in head
    assert least == "Least p90 latency: 1000 usec with the model's shape, batch size 1, concurrency 2"


def test_request_rates_are_named() -> None:
    [run] = runs("--request-rate-range=50.5", levels=[[level(50.5, 1, 2000, 50, mode=LoadMode.REQUEST_RATE)]])
    head, line = sweep_table([run]).splitlines()
    assert "Request Rate" in head
    assert " 50.5 " in line


@pytest.mark.slow
def test_every_combination_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served_models.write_model(tmp_path / "models", "x", served_models.identity("TYPE_FP32", "-1", 4))
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        words = ["-mx", f"-u{server.url}", "--sweep=shape=2,3,batch=1,8", "--request-count=5", "--concurrency-range=2"]
        code = perf([*words, "--no-collect-metrics", f"-f{tmp_path / 'out.csv'}"])
    assert code == 99
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.startswith("*** Sweep")] == [
        "*** Sweep 1 of 4: shape 2, batch size 1 ***",
        "*** Sweep 2 of 4: shape 2, batch size 8 ***",
        "*** Sweep 3 of 4: shape 3, batch size 1 ***",
        "*** Sweep 4 of 4: shape 3, batch size 8 ***",
    ]
    _, *lines = text[text.index("Shape  Batch") :].splitlines()
    assert [line.split()[:3] for line in lines[:4]] == [
        ["2", "1", "2"],
        ["2", "8", "failed:"],
        ["3", "1", "2"],
        ["3", "8", "failed:"],
    ]
    assert lines[1].endswith("can not specify batch size > 4 as that is the max_batch_size of the model")
    assert sorted(file.name for file in tmp_path.glob("*.csv")) == ["out-2-b1.csv", "out-3-b1.csv"]


def test_files_have_what_a_run_varies_in_their_names() -> None:
    words = ["-mx", "--sweep=shape=a/b:3x4+C:5,batch=2", "-fout.csv", "--profile-export-file=p.json"]
    [point] = sweep_points(parse_perf(words, {}))
    assert point.output.csv_file == Path("out-a-b-3x4-C-5-b2.csv")
    assert point.output.profile_export_file == Path("p-a-b-3x4-C-5-b2.json")


def test_a_table_of_nothing() -> None:
    assert sweep_table([]).count("\n") == 1
    assert sweep_table([SweepRun(PerfSettings(), problem="x")]).endswith("failed: x\n")
