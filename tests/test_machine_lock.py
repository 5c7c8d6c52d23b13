"""Tests marked ``serial`` run alone, also where pytest-xdist runs tests side by side."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from naiad.testing import wait_until
from support.machine_lock import MachineLock
from support.source_tree import ROOT

WITHIN_S = 10
# Each file meets its neighbour, unless its test is alone.
SIDE_BY_SIDE = """
import os, time
from pathlib import Path
import pytest

HERE = Path({folder!r})

def seen(name, within_s):
    deadline = time.monotonic() + within_s
    while not (HERE / name).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return (HERE / name).exists()

def test_beside():
    (HERE / "{own}").touch()
    assert seen("{other}", 20)

@pytest.mark.serial
def test_alone():
    with open(HERE / "alone", "x"):
        time.sleep(0.1)
    os.unlink(HERE / "alone")
"""


def test_many_share_the_lock(tmp_path: Path) -> None:
    one, other = MachineLock(tmp_path), MachineLock(tmp_path)
    with one.held(exclusive=False), other.held(exclusive=False):
        pass
    one.close()
    other.close()


@pytest.mark.parametrize("alone", [False, True])
def test_an_exclusive_holder_has_no_other_beside_it(tmp_path: Path, alone: bool) -> None:
    locks = [MachineLock(tmp_path) for _ in range(3)]
    order: list[str] = []

    def enter(lock: MachineLock, name: str, alone: bool) -> None:
        with lock.held(exclusive=alone):
            order.append(name)

    with locks[0].held(exclusive=not alone):
        first = threading.Thread(target=enter, args=(locks[1], "second", alone))
        first.start()
        first.join(0.1)
        assert order == []
        order.append("first")
    first.join(WITHIN_S)
    assert order == ["first", "second"]
    for lock in locks:
        lock.close()


def test_an_exclusive_holder_goes_before_those_that_come_later(tmp_path: Path) -> None:
    locks = [MachineLock(tmp_path) for _ in range(3)]
    order: list[str] = []
    waiting = threading.Event()

    def enter(lock: MachineLock, name: str, alone: bool) -> None:
        waiting.set()
        with lock.held(exclusive=alone):
            order.append(name)

    with locks[0].held(exclusive=False):
        alone = threading.Thread(target=enter, args=(locks[1], "alone", True))
        alone.start()
        waiting.wait(WITHIN_S)
        wait_until(lambda: is_locked(tmp_path / "gate"), WITHIN_S, "it holds the gate and waits for the lock")
        late = threading.Thread(target=enter, args=(locks[2], "late", False))
        late.start()
        late.join(0.1)
        assert order == []
    alone.join(WITHIN_S)
    late.join(WITHIN_S)
    assert order == ["alone", "late"]
    for lock in locks:
        lock.close()


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.slow
def test_serial_tests_of_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    for own, other in (("one", "two"), ("two", "one")):
        text = SIDE_BY_SIDE.format(folder=str(tmp_path), own=own, other=other)
        (tmp_path / f"test_{own}.py").write_text(text)
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {ROOT / 'tests'}\nmarkers = serial: alone\naddopts = -p no:cacheprovider\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", str(tmp_path)]
    bare = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=bare, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
