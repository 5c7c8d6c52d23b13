"""Runs side by side, as text and as a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from naiad.perf.report.compare import compare_runs, comparison_html, comparison_text, write_comparison_html
from naiad.perf.report.comparison import Comparison, compare, read_comparison, run_names
from naiad.perf.report.json_file import ReportFileError, write_report
from naiad.perf.results import LevelResult, Report, Second, Usage
from naiad.perf.settings import OutputSettings, PerfSettings
from support.html_pages import Page
from support.perf_reports import level, report, window

STEADY = [100, 101, 99, 102, 98, 100, 103, 97]


def measured(value: float, rates: Sequence[int], latency_us: float = 1000, **more: object) -> LevelResult:
    """A level with so many requests in each second."""
    seconds = [
        Second(float(place), rate, 0, latency_us, latency_us + place, latency_us) for place, rate in enumerate(rates)
    ]
    usage = Usage("pid 7", 0.5, 100, 50 * 2**20)
    return level(value, window([latency_us] * sum(rates), len(rates), seconds=seconds, usage=usage), **more)


def compared(*reports: Report) -> Comparison:
    return compare([f"run{number}" for number in range(len(reports))], reports)


def faster(rates: Sequence[int], by: int) -> list[int]:
    return [rate + by for rate in rates]


def test_a_difference_a_chance_one_and_the_table() -> None:
    found = compared(
        report(measured(1, STEADY), measured(2, STEADY)),
        report(measured(1, faster(STEADY, 20), 800), measured(2, STEADY[::-1])),
        report(measured(1, faster(STEADY, 1))),
    )
    lines = comparison_text(found).splitlines()
    assert lines[:2] == ["Comparison with run0", ""]
    place = lines.index("Concurrency: 1")
    assert [line.split() for line in lines[place + 1 : place + 5]] == [
        ["run", "inferences/s", "change", "p50", "p95", "change", "p99", "server", "CPU", "server", "RSS", "state"],
        ["run0", "100.0", "1.00", "ms", "1.00", "ms", "1.00", "ms", "0.50", "50.0", "MiB", "stable"],
        ["run1", "120.0", "+20.0%", "800", "µs", "800", "µs", "-20.0%", "800", "µs", "0.50", "50.0", "MiB", "stable"],
        ["run2", "101.0", "+1.0%", "1.00", "ms", "1.00", "ms", "+0.0%", "1.00", "ms", "0.50", "50.0", "MiB", "stable"],
    ]
    assert lines[place + 5] == "    run1: rate +20.0% (p < 0.001); p95 -20.0% (p < 0.001)"
    assert lines[place + 6].startswith("    run2: rate: no difference shown (p ")
    table = lines[place + 1 : place + 5]
    assert len({line.index(name) for line, name in zip(table, ("state", *["stable"] * 3), strict=True)}) == 1
    assert "Mann-Whitney" in lines[-2]
    assert "repeat the runs" in lines[-1]


def test_few_seconds_say_so() -> None:
    found = compared(report(measured(1, [100, 101, 99])), report(measured(1, [200, 201, 199])))
    assert "    run1: rate +100.0%: 3 and 3 seconds are too few to tell it from chance;" in comparison_text(found)


def test_runs_without_seconds_are_compared_by_their_windows() -> None:
    first, second = (
        level(
            1, window([500] * 40, 4), windows=[window([500] * 10, 1, 1_795_423_730_000_000_000 + n) for n in range(2)]
        )
        for _ in range(2)
    )
    text = comparison_text(compared(report(first), report(second)))
    assert "rate +0.0%: 2 and 2 seconds are too few" in text
    assert "p95 +0.0%: 0 and 0 seconds are too few" in text


def test_levels_that_only_some_runs_have() -> None:
    found = compared(
        report(measured(1, STEADY)), report(measured(1, STEADY), measured(4, STEADY)), report(measured(4, STEADY))
    )
    text = comparison_text(found)
    assert "Concurrency: 4\n" in text
    assert "    run1: the first run does not have this level\n" in text
    batched = compared(report(measured(1, STEADY)), report(measured(1, STEADY, batch_size=8)))
    assert "Concurrency: 1, batches of 8\n" in comparison_text(batched)
    assert "no level with successful requests" in comparison_text(compared(Report(), Report()))


def test_what_else_differs_and_doubtful_levels_are_said() -> None:
    first = report(measured(1, STEADY), machine={"processor": "A", "cores": "2", "naiad": "1"})
    second = report(
        measured(1, STEADY, unstable_reason="rate"), protocol="grpc", machine={"processor": "B", "cores": "2"}
    )
    text = comparison_text(compared(first, second))
    assert "  The protocol differs: run0: http, run1: grpc\n" in text
    assert "  The processor differs: run0: A, run1: B\n" in text
    assert "  The naiad differs: run0: 1, run1: unknown\n" in text
    assert "The cores differ" not in text
    assert "unstable: rate\n" in text


def test_names_are_as_short_as_they_can_be() -> None:
    assert run_names([Path("/x/a.json"), Path("/x/b.json")]) == ["a", "b"]
    assert run_names([Path("/x/old/run.json"), Path("/x/new/run.json")]) == ["old/run", "new/run"]
    assert run_names([Path("run.json"), Path("run.json")]) == ["run (1)", "run (2)"]


def test_files_are_read(tmp_path: Path) -> None:
    for name in "ab":
        write_report(report(measured(1, STEADY)), PerfSettings(), tmp_path / f"{name}.json")
    found = read_comparison([tmp_path / "a.json", tmp_path / "b.json"])
    assert found.names == ("a", "b")
    with pytest.raises(ReportFileError, match="cannot read"):
        read_comparison([tmp_path / "a.json", tmp_path / "c.json"])


def test_all_files_of_a_comparison(tmp_path: Path) -> None:
    write_report(report(measured(1, STEADY)), PerfSettings(), tmp_path / "a.json")
    write_report(report(measured(1, faster(STEADY, 20)), measured(2, STEADY)), PerfSettings(), tmp_path / "b.json")
    files = (tmp_path / "a.json", tmp_path / "b.json")
    out = OutputSettings(csv_file=tmp_path / "c.csv", html_file=tmp_path / "c.html", json_file=tmp_path / "c.json")
    text = compare_runs(PerfSettings(compare=files, output=out))
    found = read_comparison(files)
    assert text == comparison_text(found)
    assert (tmp_path / "c.html").read_text() == comparison_html(found)
    with (tmp_path / "c.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["Run"], row["Load"], row["Level"], row["Inferences/Second"]) for row in rows] == [
        ("a", "concurrency", "1", "100"),
        ("b", "concurrency", "1", "120"),
        ("b", "concurrency", "2", "100"),
    ]
    assert [row["Rate ratio"] for row in rows] == ["", "1.2", ""]
    assert float(rows[1]["Rate p"]) < 0.001
    read = json.loads((tmp_path / "c.json").read_text())
    assert (read["schema"], read["schema_version"], read["runs"]) == ("naiad-perf-comparison", 1, ["a", "b"])
    change = read["levels"][0]["runs"][1]["rate"]
    assert (change["ratio"], change["is_significant"], change["seconds"]) == (pytest.approx(1.2), True, [8, 8])
    assert read["levels"][1]["runs"][0]["rate"] is None
    write_report(Report(), PerfSettings(), tmp_path / "a.json")
    compare_runs(PerfSettings(compare=(tmp_path / "a.json",), output=out))
    assert (tmp_path / "c.csv").read_text() == "Run\n"


@pytest.mark.parametrize("runs", [1, 2, 12])
def test_the_page_overlays_any_number_of_runs(tmp_path: Path, runs: int) -> None:
    reports = [report(measured(1, faster(STEADY, run)), measured(4, faster(STEADY, run))) for run in range(runs)]
    found = compared(*reports)
    write_comparison_html(found, tmp_path / "page.html")
    page = Page.read((tmp_path / "page.html").read_text())
    assert (page.unclosed, page.loads) == ([], [])
    overlays = ["Rate by concurrency", "p95 latency by concurrency", "p95 latency against rate"]
    overlays += [
        "p99 latency by concurrency",
        "CPU of the server by concurrency",
        "Memory of the server by concurrency",
    ]
    seconds = ["Rate, second by second", "p95 latency, second by second"]
    assert page.texts["figcaption"] == [*overlays, *seconds, *seconds]
    assert page.counts["polyline"] == runs * len(page.texts["figcaption"])
    titles = set(page.texts["title"])
    assert {f"run{run}, Concurrency: 4: {100 + run}" for run in range(runs)} <= titles
    assert {"run0, 0.0 s: 100/s", "run0, 7.0 s: p95 1.01 ms"} <= titles


def test_the_page_of_runs_without_figures_and_with_odd_names() -> None:
    page = Page.read(comparison_html(compare(["<a>", "b&c"], [Report(), Report()])))
    assert (page.unclosed, page.loads) == ([], [])
    assert page.texts["h1"] == ["<a>"]
    assert "The runs have no level with successful requests." in page.texts["p"]
