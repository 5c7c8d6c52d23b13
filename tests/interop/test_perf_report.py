"""The report of ``naiad perf`` beside that of the reference's perf_analyzer, on the same models of the same server.

Figures differ, so they are taken out: what is compared is every line, and every column of the tables. The blocks that
only Naiad has are left out.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from naiad.testing import RunningServer, serving
from support.perf_analyzer import found_tool, run_tool
from support.perf_runs import run_command
from support.python_models import REPEATS, write_python_model
from support.served_ensembles import chain, step, write_ensemble
from support.served_models import identity, write_model

pytestmark = pytest.mark.slow

NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]\d+)?")
OWN = (re.compile(r"  Findings:\n.*?\n\n", re.DOTALL), re.compile(r"Conclusions:\n.*?\n\n", re.DOTALL))
# They stand there when requests were late, which nobody can order.
LATE = ("    Avg send request rate:", "    [WARNING] Perf Analyzer was not able to keep up")
# The reference tells these of its input data, and of streams nothing.
NOT_SHOWN = (" Successfully read data", "    Avg gRPC time:")


@pytest.fixture(scope="module")
def tool() -> str:
    return found_tool()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("models")
    tensors = {"inputs": {"IN": "TYPE_INT32 4"}, "outputs": {"OUT": "TYPE_INT32 4"}}
    for name in ("simple", "a", "b"):
        write_model(repository, name, identity(dims="4", max_batch_size=8))
    write_model(repository, "cached", identity(dims="4", max_batch_size=8, extra="response_cache { enable: true }"))
    write_ensemble(repository, "chained", *chain("a", "b"), **tensors)
    write_ensemble(repository, "half_cached", *chain("a", "cached"), **tensors)
    outer = (step("chained", {"IN": "IN"}, {"OUT": "t"}), step("b", {"INPUT0": "t"}, {"OUTPUT0": "OUT"}))
    write_ensemble(repository, "nested", *outer, **tensors)
    write_python_model(repository, "repeats", REPEATS, "max_batch_size: 0 model_transaction_policy { decoupled: true }")
    log = tmp_path_factory.mktemp("log") / "log"
    with serving(log, "--model-repository", repository, "--cache-config", "local,size=1048576") as running:
        yield running


def lines(text: str) -> list[str]:
    """The lines of a report with N for each number; passes of a level count as one."""
    for block in OWN:
        text = block.sub("", text)
    kept = [NUMBER.sub("N", line) for line in text.splitlines() if not line.startswith(LATE)]
    return [line for line, same in groupby(kept) for _ in ([0] if line.startswith("  Pass [N]") else same)]


SHORT = ("-p", "300", "-s", "900")
LOADS = {
    "levels": ("simple", "http", *SHORT, "--concurrency-range", "1:3"),
    "a percentile, verbose": ("simple", "http", *SHORT, "--concurrency-range", "2", "-v", "--percentile=95"),
    "gRPC": ("simple", "grpc", *SHORT, "--concurrency-range", "2"),
    "gRPC, verbose": ("simple", "grpc", *SHORT, "-v"),
    "asynchronous": ("simple", "http", *SHORT, "-a", "--concurrency-range", "4", "--percentile=77"),
    "rates": ("simple", "http", *SHORT, "--request-rate-range", "50.5:51:0.5", "-v"),
    "poisson": ("simple", "grpc", *SHORT, "--request-rate-range", "100", "--request-distribution", "poisson"),
    "counts": ("simple", "http", "-s", "900", "--measurement-mode", "count_windows"),
    "a number of requests": ("simple", "http", "--request-count", "300", "-b", "2", "-v"),
    "a limit": ("simple", "http", *SHORT, "--concurrency-range", "4:4", "-l", "1000"),
    "an ensemble": ("chained", "http", *SHORT, "--concurrency-range", "1:2"),
    "an ensemble of ensembles": ("nested", "grpc", *SHORT),
    "a cache": ("cached", "http", *SHORT),
    "a cache in a step": ("half_cached", "http", *SHORT),
}


def both(tool: str, server: RunningServer, folder: Path, *words: str) -> tuple[str, str]:
    """What the reference and Naiad print; each writes its files into a folder of its own."""
    model, protocol, *options = words
    url = server.url if protocol == "http" else server.grpc_url
    texts = []
    for name in ("reference", "naiad"):
        out = folder / name
        out.mkdir()
        files = ("-f", str(out / "table.csv"), "--profile-export-file", str(out / "profile.json"))
        common = ("-m", model, "-u", url, "-i", protocol, *options, *files)
        if name == "naiad":
            code, text, errors = run_command(*common)
        else:
            finished = run_tool([tool, *common])
            code, text, errors = finished.returncode, finished.stdout, finished.stderr
        assert code == 0, text + errors
        texts.append(text)
    return texts[0], texts[1]


def header(file: Path) -> list[str]:
    with file.open() as found:
        return next(csv.reader(found))


@pytest.mark.parametrize("load", LOADS)
def test_the_same_lines_and_columns(tool: str, server: RunningServer, tmp_path: Path, load: str) -> None:
    reference, naiad = both(tool, server, tmp_path, *LOADS[load])
    assert lines(naiad) == lines(reference)
    assert header(tmp_path / "naiad" / "table.csv") == header(tmp_path / "reference" / "table.csv")


def test_streams_of_a_decoupled_model(tool: str, server: RunningServer, tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"X": [3.0]}]}))
    options = ("--streaming", "--shape", "X:1", "--input-data", str(data), "--verbose-csv", *SHORT)
    reference, naiad = both(tool, server, tmp_path, "repeats", "grpc", *options)
    expected = [line.replace("the first response", "the last response") for line in lines(reference) if line.strip()]
    shown = [line for line in lines(naiad) if line.strip()]
    assert [line for line in shown if not line.startswith(NOT_SHOWN)] == [
        line for line in expected if not line.startswith(NOT_SHOWN)
    ]
    known = header(tmp_path / "reference" / "table.csv")
    assert header(tmp_path / "naiad" / "table.csv")[: len(known)] == known


@pytest.mark.parametrize("load", [(), ("--request-rate-range", "50")], ids=["concurrency", "rate"])
def test_the_profile_export_has_the_same_names(
    tool: str, server: RunningServer, tmp_path: Path, load: tuple[str, ...]
) -> None:
    both(tool, server, tmp_path, "simple", "http", *SHORT, *load)
    shapes = []
    for name in ("reference", "naiad"):
        read = json.loads((tmp_path / name / "profile.json").read_text())
        (experiment,) = read["experiments"]
        request = experiment["requests"][0]
        shapes.append([list(read), list(experiment), json.dumps(experiment["experiment"]), list(request)])
        assert request["request_inputs"].keys() == {"INPUT0"}
        bounds = experiment["window_boundaries"]
        assert len(bounds) > 3
        assert bounds[0] <= request["response_timestamps"][0] <= bounds[-1]
    assert shapes[0] == shapes[1]
