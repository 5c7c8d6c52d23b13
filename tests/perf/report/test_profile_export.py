"""The profile export. Its form was taken from a file of the reference's perf_analyzer 2.51."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.perf.report.profile_export import write_profile_export
from naiad.perf.results import LoadMode, Report, RequestRecord
from naiad.version import __version__
from support.perf_reports import BEGAN_NS, level, report, window

WINDOW_NS = 2_000_000_000


def exported(found: Report, folder: Path) -> dict[str, Any]:
    write_profile_export(found, folder / "profile.json")
    read: dict[str, Any] = json.loads((folder / "profile.json").read_text())
    return read


def test_requests_and_windows_of_each_level(tmp_path: Path) -> None:
    windows = [window([100], 2, BEGAN_NS + number * WINDOW_NS) for number in range(3)]
    found = report(level(2, windows[0], windows=windows), level(50.5, windows[0], LoadMode.REQUEST_RATE, windows=[]))
    found.records += [
        RequestRecord(0, 20, (25,), inputs={"IN": np.array([[1, 2]], np.int32)}, outputs=({"OUT": [3, 4]},)),
        RequestRecord(0, 10, (15, 16), 7, {"IN": np.array([3.0], np.float32)}, ({"OUT": [b"text"]}, {})),
        RequestRecord(0, 12, (), is_success=False),
        RequestRecord(1, 30, (31,)),
    ]
    read = exported(found, tmp_path)
    assert list(read) == ["experiments", "version", "service_kind", "endpoint"]
    assert (read["version"], read["service_kind"], read["endpoint"]) == (__version__, "triton", "")
    first, second = read["experiments"]
    assert first["experiment"] == {"mode": "concurrency", "value": 2}
    assert first["requests"] == [
        {
            "timestamp": 10,
            "sequence_id": 7,
            "request_inputs": {"IN": 3.0},
            "response_timestamps": [15, 16],
            "response_outputs": [{"OUT": "text"}, {}],
        },
        {
            "timestamp": 20,
            "request_inputs": {"IN": [1, 2]},
            "response_timestamps": [25],
            "response_outputs": [{"OUT": [3, 4]}],
        },
    ]
    assert first["window_boundaries"] == [BEGAN_NS + number * WINDOW_NS for number in range(4)]
    assert second["experiment"] == {"mode": "request_rate", "value": 50.5}
    assert [request["timestamp"] for request in second["requests"]] == [30]
    assert second["window_boundaries"] == [BEGAN_NS, BEGAN_NS + WINDOW_NS]


def test_responses_that_arrived_together_are_apart(tmp_path: Path) -> None:
    """GenAI-Perf divides by the time between responses."""
    found = report(level(2, window([100], 1, BEGAN_NS)))
    found.records.append(RequestRecord(0, 10, (20, 20, 20, 1500, 9000)))
    (experiment,) = exported(found, tmp_path)["experiments"]
    assert experiment["requests"][0]["response_timestamps"] == [20, 1020, 2020, 3020, 9000]


@pytest.mark.parametrize(
    ("mode", "value", "written"),
    [
        (LoadMode.CONCURRENCY, 8, '"concurrency","value":8}'),
        (LoadMode.PERIODIC_CONCURRENCY, 10, '"concurrency","value":10}'),
        (LoadMode.REQUEST_RATE, 50, '"request_rate","value":50.0}'),
        (LoadMode.CUSTOM_INTERVALS, 3.75, '"request_rate","value":3.75}'),
        (LoadMode.FIXED_SCHEDULE, 3, '"request_rate","value":0.0}'),
        (LoadMode.SESSION_CONCURRENCY, 2, '"request_rate","value":0.0}'),
    ],
)
def test_readers_look_a_level_up_by_a_known_mode_and_its_value(
    tmp_path: Path, mode: LoadMode, value: float, written: str
) -> None:
    """The text matters: readers make a key of the value, and ``50`` is not ``50.0``."""
    write_profile_export(report(level(value, window([100]), mode)), tmp_path / "profile.json")
    assert '"experiment":{"mode":' + written in (tmp_path / "profile.json").read_text()


def test_many_requests(tmp_path: Path) -> None:
    found = report(level(1, window([100])))
    found.records += [RequestRecord(0, number, (number + 1,)) for number in range(10_000)]
    requests = exported(found, tmp_path)["experiments"][0]["requests"]
    assert [request["timestamp"] for request in requests] == list(range(10_000))


def test_nothing_was_measured(tmp_path: Path) -> None:
    assert exported(Report(), tmp_path)["experiments"] == []
