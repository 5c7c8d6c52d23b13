"""``scripts/soak``: what it takes for the fault of a killed worker, what it calls growth, and a minute of it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.client import InferResult, ResponseError
from support.bench_parts import SCRIPTS

S = 1_000_000_000
QUICK_MODELS = "mlp,mlp_process,identity,python_identity,ensemble,sequence_direct,decoupled,square"


def part(name: str) -> Any:
    """A module of the soak."""
    if str(SCRIPTS) not in sys.path:
        sys.path.append(str(SCRIPTS))
    return importlib.import_module(f"soaking.{name}")


def failure(error: Exception, began_s: float, ended_s: float, sequence_s: float = 0) -> Any:
    record = part("record")
    may_be_repeated = isinstance(error, ResponseError) and error.may_pass_later
    times = (int(began_s * S), int(ended_s * S), int(sequence_s * S))
    return record.Failure("m", "http", record.cause_of(error), may_be_repeated, *times)


KILLED = ResponseError(503, "Stub process 'm_0_0' is not healthy: killed by SIGKILL")
LOST = ResponseError(400, "must specify the START flag on the first request of the sequence")
GONE = ResponseError(503, "instance 'm_0_0', which had its state, is gone. Start the sequence again")


@pytest.mark.parametrize(
    ("error", "began_s", "ended_s", "sequence_s", "is_explained"),
    [
        (KILLED, 9, 11, 0, True),
        (KILLED, 10.5, 11, 0, True),
        (KILLED, 8, 9, 0, False),
        (KILLED, 13, 14, 0, False),
        (ResponseError(503, "the server has too many requests"), 9, 11, 0, False),
        (ResponseError(500, "killed by SIGKILL"), 9, 11, 0, False),
        (LOST, 11, 12, 9, True),
        (LOST, 11, 12, 11, False),
        (LOST, 11, 12, 0, False),
        (GONE, 9.9, 10.2, 9, True),
        (GONE, 13, 14, 12.5, False),
        (part("callers").WrongOutputError("other elements"), 9, 11, 9, False),
    ],
)
def test_a_kill_explains_what_its_worker_held(
    error: Exception, began_s: float, ended_s: float, sequence_s: float, is_explained: bool
) -> None:
    kill = part("faults").Kill(10 * S, 12 * S, "m_0_0")
    assert kill.explains(failure(error, began_s, ended_s, sequence_s)) is is_explained


def samples(sizes: list[float]) -> list[Any]:
    sample = part("samples").Sample
    return [sample(float(10 * n), int(size), int(size), 20, 4, 0, 0, 0, 0) for n, size in enumerate(sizes)]


def test_the_slope_sees_a_leak_and_not_a_step() -> None:
    slope = part("samples").slope_per_hour
    leak = samples([1e8 + 1000 * n for n in range(100)])
    step = samples([1e8 + (5e6 if n > 60 else 0) for n in range(100)])
    assert slope(leak, lambda s: s.rss_bytes) == pytest.approx(360_000)
    assert slope(step, lambda s: s.rss_bytes) == 0


def test_outputs_are_compared() -> None:
    callers = part("callers")
    expected = np.array([[1, 2]], np.float32)

    def result(array: np.ndarray) -> InferResult:
        return InferResult("m", "1", "", {}, {"y": array})

    callers.check(result(expected + np.float32(1e-6)), "y", expected)
    for other in (expected + 1, expected[0], np.full((1, 2), np.nan, np.float32)):
        with pytest.raises(callers.WrongOutputError):
            callers.check(result(other), "y", expected)
    with pytest.raises(callers.WrongOutputError):
        callers.check(result(expected), "z", expected)


def soak(*arguments: object, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / "soak"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)


def test_unknown_models_are_named_with_the_known_ones() -> None:
    finished = soak("--models", "nothing")
    assert finished.returncode == 2
    assert "no model fits 'nothing'; there are: mlp, " in finished.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_minute_of_it(tmp_path: Path) -> None:
    """Few models, all of which are written and loaded in a moment; every kind of request."""
    file = tmp_path / "soak.json"
    finished = soak("--minutes", 1, "--models", QUICK_MODELS, "--load", 0.3, "--json", file, limit_s=390)
    assert finished.returncode == 0, f"{finished.stdout}\n{finished.stderr}"
    found = {figure["name"]: figure["value"] for figure in json.loads(file.read_text())["figures"]}
    assert found["requests"] > 100
    assert (found["reloads"], found["kills"]) == (1, 1)
