"""The JSON report: what it holds, reading it back, and what is said of files that are none."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from naiad.perf.report.json_file import ReportFileError, read_report, write_report
from naiad.perf.report.machine import machine_fingerprint
from naiad.perf.report.text import report_text
from naiad.perf.results import ClientUsage, LoadMode, Report, RequestRecord, Second, Usage
from naiad.perf.settings import LoadPlan, OutputSettings, PerfSettings
from naiad.version import __version__
from support.perf_reports import histogram, level, parts, report, window

LATENCIES = [200 + number for number in range(100)]
SETTINGS = PerfSettings(load=LoadPlan(seed=7), output=OutputSettings(verbose=1, json_file=Path("x.json")))


def full_report() -> Report:
    """A report in which everything is set."""
    full = window(
        LATENCIES,
        sequences=3,
        delayed=2,
        first_response=histogram([5, 6]),
        between_responses=histogram([1]),
        send_delay=histogram([9]),
        errors=Counter({("HTTP 400", "bad"): 3, ("connection lost", ""): 1}),
        server=parts("outer", more={"composing": [parts("a"), parts("b", more={"cache_hits": 4})]}),
        usage=Usage("pid 7", 0.5, 10.25, 1000, {"GPU-a": 0.5}, {"GPU-a": 70.5}, {"GPU-a": 5}, {"GPU-a": 6}),
        client=ClientUsage(0.9, 2, 25.5, histogram([100]), is_bottleneck=True, waited_cores=0.1),
        seconds=[Second(0.0, 50, 1, 250.5, 290, 299, 0.5, 1000, 0.25), Second(1.0, 50)],
    )
    unstable = level(2.5, full, LoadMode.REQUEST_RATE, 4, unstable_reason="rate", notes=["one", "two"])
    return report(
        level(1, window(LATENCIES)),
        unstable,
        level(9, window([]), is_within_limit=False),
        machine=machine_fingerprint(),
        command=("-m", "simple"),
        endpoint="127.0.0.1:8000",
        warmup_ns=12_345,
        is_decoupled=True,
        is_interrupted=True,
    )


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    found = full_report()
    write_report(found, SETTINGS, tmp_path / "report.json")
    read = read_report(tmp_path / "report.json")
    assert report_text(read, SETTINGS) == report_text(found, SETTINGS)
    second, written = read.levels[1], found.levels[1]
    assert second.level == written.level
    assert second.merged.errors == written.merged.errors
    assert second.merged.seconds == written.merged.seconds
    assert second.merged.usage == written.merged.usage
    assert second.merged.server == written.merged.server
    assert list(second.windows[2].latency.buckets()) == list(written.windows[2].latency.buckets())
    assert (read.machine, read.command, read.warmup_ns) == (found.machine, ("-m", "simple"), 12_345)
    write_report(read, SETTINGS, tmp_path / "again.json")
    assert plain(tmp_path / "again.json")["levels"] == plain(tmp_path / "report.json")["levels"]


def plain(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_what_it_says_about_the_run(tmp_path: Path) -> None:
    found = full_report()
    found.records.append(RequestRecord(0, 1, (2,)))
    write_report(found, SETTINGS, tmp_path / "report.json")
    read = plain(tmp_path / "report.json")
    assert (read["schema"], read["schema_version"], read["naiad_version"]) == ("naiad-perf-report", 1, __version__)
    assert read["seed"] == 7
    assert read["settings"]["output"]["json_file"] == "x.json"
    assert read["settings"]["load"]["mode"] == "concurrency"
    assert "records" not in read
    figures = read["levels"][0]["figures"]
    assert figures["inference_rate"] == 50
    assert figures["latency_us"]["avg"] == 249.5
    assert figures["latency_us"].keys() >= {"p50", "p90", "p95", "p99", "p99.9", "p99.99", "least", "greatest"}
    assert sum(figures["parts_us"].values()) == pytest.approx(249.5)
    assert figures["largest_part"] is None
    assert read["levels"][1]["figures"]["errors"] == 4


def test_the_machine(tmp_path: Path) -> None:
    found = machine_fingerprint()
    assert found.keys() >= {"processor", "cores", "memory", "kernel", "python", "naiad"}
    assert all(found.values())
    assert found["naiad"] == __version__


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "report.json"
    write_report(report(level(1, window(LATENCIES))), SETTINGS, file)
    file.write_text(json.dumps(plain(file) | changes))
    return file


def test_names_of_a_newer_version_are_passed_over_and_older_files_take_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, invented="later")
    shorter = {name: value for name, value in plain(file).items() if name not in ("is_async", "machine")}
    file.write_text(json.dumps(shorter))
    assert (read_report(file).model, read_report(file).machine) == ("simple", {})


def test_files_that_are_no_report(tmp_path: Path) -> None:
    cases = {
        "absent": (None, "cannot read '.*/absent': No such file or directory"),
        "text": ("hello", "is no JSON: .*expected a file of naiad perf --json"),
        "list": ("[]", "is no report; expected a file of naiad perf --json"),
        "export": ('{"experiments":[]}', "is no report; it looks like a profile export; expected"),
    }
    for name, (content, error) in cases.items():
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ReportFileError, match=error):
            read_report(tmp_path / name)


def damaged(folder: Path, *path: str | int, value: Any) -> Path:
    """A file in which one value is another."""
    file = written(folder)
    content = place = plain(file)
    for name in path[:-1]:
        place = place[name]  # type: ignore[index]
    place[path[-1]] = value  # type: ignore[index]
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        (("schema_version",), 2, "version 2 of the report's schema, written by naiad .* reads up to version 1"),
        (("schema_version",), "x", "has version 'x' of the report's schema"),
        (("levels",), {}, "levels: found {}, expected a list; the file is damaged or was edited"),
        (("levels", 0), {}, r"levels\[0\]: 'level' is missing"),
        (("levels", 0, "level", "mode"), "odd", r"levels\[0\].level.mode: cannot be read: 'odd' is not a valid"),
        (("levels", 0, "merged", "requests"), "3", r"levels\[0\].merged.requests: found '3', expected a whole number"),
        (("levels", 0, "merged", "requests"), True, "found True, expected a whole number"),
        (("levels", 0, "merged", "latency", "count"), 3, "latency: cannot be read: its buckets hold 100 durations"),
        (("levels", 0, "merged", "latency"), {}, "latency: cannot be read: 'buckets'"),
        (("levels", 0, "merged", "errors"), [["a"]], "errors: cannot be read: invalid literal"),
    ],
)
def test_damaged_files(tmp_path: Path, path: tuple[str | int, ...], value: Any, error: str) -> None:
    with pytest.raises(ReportFileError, match=error):
        read_report(damaged(tmp_path, *path, value=value))
