"""What options do to a run, where no other test shows it: against servers that count, and that keep what they got."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from support.perf_peer import peer
from support.perf_runs import measure, measure_level, run_command, windows
from support.tfserving_peer import tfserving_peer

KNOWN = ("-m", "known")
KEPT = ("-m", "half_plus_three", "--service-kind", "tfserving", "--request-count", 3)


@pytest.fixture(scope="module")
def known() -> Iterator[str]:
    with peer(delay_ms=5) as address:
        yield address


def kept(*words: object) -> list[Any]:
    """The rows of the requests that a server has got."""
    with tfserving_peer() as address:
        measure(*KEPT, "-u", address, *words)
        with urlopen(f"http://{address}/seen") as response:
            return [request["body"]["instances"] for request in json.load(response)]


def test_requests_before_the_first_window() -> None:
    # One request is always sent before the measurement.
    assert len(kept()) == 1 + 3
    assert len(kept("--warmup-request-count", 5)) == 1 + 5 + 3


@pytest.mark.parametrize(
    ("words", "lengths"), [((), {128}), (("--string-length", 7), {7}), (("--string-data", "hello"), {5})]
)
def test_strings(words: tuple[object, ...], lengths: set[int]) -> None:
    rows = kept("--model-signature-name", "echo", *words)
    assert {len(text) for row in rows for pair in row for text in pair} == lengths
    assert ("hello" in rows[0][0]) == ("--string-data" in words)


def test_the_old_name_of_a_directory_with_data(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0\0\x20\x40")
    assert kept("--data-directory", tmp_path) == [[2.5]] * 4


def test_a_seed_makes_the_same_data_again() -> None:
    first, again, other = (kept("--seed", seed)[0] for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    ("words", "count", "is_stable"), [(("-s", 0.0001, "-r", 4), 4, False), (("-s", "900000%", "-r", 9), 3, True)]
)
def test_windows_until_they_agree(known: str, words: tuple[object, ...], count: int, is_stable: bool) -> None:
    level = measure_level(*KNOWN, "-u", known, "-p", 60, *words)
    assert (len(level.windows), not level.unstable_reason) == (count, is_stable)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("--binary-search", "--concurrency-range", "1:8", "-l", 4000), [1, 8]),
        (("--binary-search", "--concurrency-range", "2:8", "-l", 1), [2]),
        (("--concurrency-range", "1:0", "-l", 4000, "--max-threads", 3), [1, 2, 3]),
        (("-d", "-t", 2, "-c", 4, "-l", 4000), [2, 3, 4]),
        (("-t", 3), [3]),
    ],
)
def test_the_levels_of_a_search(known: str, words: tuple[object, ...], values: list[float]) -> None:
    report = measure(*KNOWN, "-u", known, *windows(60), *words)
    assert [level.level.value for level in report.levels] == values


@pytest.mark.slow
def test_more_columns_and_more_text(known: str, tmp_path: Path) -> None:
    words = (*KNOWN, "-u", known, *windows(100), "-f", tmp_path / "out.csv", "--percentile", 90)
    code, out, _ = run_command(*words, "-v", "-v", "--verbose-csv")
    assert code == 0
    assert "Pass [1] throughput: " in out
    assert "Avg client overhead: " in out
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header.endswith(",request/response,response wait")
