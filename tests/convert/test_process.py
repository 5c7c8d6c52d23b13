"""Steps in processes of their own: results, limits, and the script that runs one again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from naiad.convert.process import StepResult, run_step_process
from naiad.convert.settings import Limits

STEPS = """
import time

def add(first, second):
    return {"sum": first + second}

def hang():
    time.sleep(600)

def grow():
    kept = bytearray(400 << 20)
    time.sleep(600)

def fail():
    raise RuntimeError("Unsupported operator 'aten::fft_rfft' in the graph")

def full():
    raise OSError(28, "No space left on device")

def lacks():
    import no_such_package

def die():
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)

def waiting():
    import os
    return os.environ.get("OMP_WAIT_POLICY")

def partial():
    from naiad.convert.step_program import write_result
    write_result({"value": {"levels": [1]}, "failure": None})
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_steps.py").write_text(STEPS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    def go(name: str, limits: Limits | None = None, **arguments: Any) -> StepResult:
        return run_step_process(name, f"own_steps:{name}", arguments, tmp_path / name, limits or Limits(time_s=60))

    return go


def test_a_step_returns_its_value_and_leaves_a_script(run: Any) -> None:
    done = run("add", first=1, second=2)
    assert done.failure is None
    assert done.value == {"sum": 3}
    (done.folder / "result.json").unlink()
    subprocess.run([sys.executable, str(done.script)], check=True, timeout=60)
    assert json.loads((done.folder / "result.json").read_text())["value"] == {"sum": 3}


def test_a_step_that_hangs_is_ended(run: Any) -> None:
    done = run("hang", Limits(time_s=1.0))
    assert "it ran for more than 1 s" in str(done.failure)
    assert "--time-limit" in str(done.failure)
    assert done.failure.is_time_limit


def test_a_step_that_takes_too_much_memory_is_ended(run: Any) -> None:
    done = run("grow", Limits(time_s=60, memory_bytes=200 << 20))
    assert "more than the 200 MiB allowed" in str(done.failure)
    assert "--memory-limit" in str(done.failure)
    assert not done.failure.is_time_limit


def test_what_a_step_wrote_before_it_was_ended_stays(run: Any) -> None:
    done = run("partial", Limits(time_s=2.0))
    assert done.failure is not None
    assert done.value in ({"levels": [1]}, None)


def test_a_failure_names_the_operator(run: Any) -> None:
    done = run("fail")
    assert done.failure.operator == "aten::fft_rfft"
    assert "RuntimeError" in (done.folder / "log.txt").read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [("full", "no room is left on the disk"), ("lacks", "'no_such_package' is not installed"), ("die", "by signal 11")],
)
def test_ends_are_told_apart(run: Any, name: str, text: str) -> None:
    assert text in str(run(name).failure)


def test_a_step_does_not_start_without_room(run: Any) -> None:
    done = run("add", Limits(disk_bytes=1 << 60), first=1, second=2)
    assert "MiB free, and a step needs" in str(done.failure)
    assert "--work" in str(done.failure)


def test_a_step_whose_folder_cannot_be_made_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_step_process("add", "own_steps:add", {}, tmp_path / "file" / "add", Limits())
    assert "the step could not start" in str(done.failure)
    assert "--work" in str(done.failure)


def test_threads_of_a_step_that_wait_sleep_unless_the_environment_says_otherwise(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"):
        monkeypatch.delenv(name, raising=False)
    assert run("waiting").value == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert run("waiting").value == "ACTIVE"
