"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from support.child_processes import LeftBehind, children
from support.machine_lock import MachineLock

# How long an example takes says more about the machine than about the code; a test as a whole has its time limit.
settings.register_profile("naiad", deadline=None)
settings.load_profile("naiad")

# Tests start some two thousand servers and workers. Without bytecode each would compile every module again, which takes
# longer than all the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Which errors Keras raises, and which names it takes, depends on the library below it; tests of others name theirs.
os.environ.setdefault("KERAS_BACKEND", "torch")

# In a worker of pytest-xdist: the lock it shares with the others. In the controller: the folder that it made for them.
LOCK = pytest.StashKey[MachineLock]()
FOLDER = pytest.StashKey[Path]()
CRASHED = pytest.StashKey[bool]()
LEFT_BEHIND = LeftBehind()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """For ``-n logical``: one worker more than there are cores. Tests wait for processes and for time to pass."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the shared folder to a worker of pytest-xdist."""
    stash = node.config.stash
    if FOLDER not in stash:
        stash[FOLDER] = Path(tempfile.mkdtemp(prefix="naiad-tests-"))
        # Tests of access rights run as another user, who has to get at what lies in it.
        stash[FOLDER].chmod(0o711)
    node.workerinput["folder"] = str(stash[FOLDER])


def pytest_configure(config: pytest.Config) -> None:
    """Open the lock in a worker of pytest-xdist, and give the worker a temporary folder of its own."""
    # Until all is collected: what comes by then stays.
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        # A shell's background job ignores SIGINT, and so would the processes that the tests start and interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    given = getattr(config, "workerinput", {})
    if "folder" in given:
        config.stash[LOCK] = MachineLock(Path(given["folder"]))
        temporary = Path(given["folder"]) / given["workerid"]
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Remember that a worker of pytest-xdist ended without being told to: a crash."""
    if error:
        node.config.stash[CRASHED] = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Another exit code for a crash than for a failed test, which may pass when it runs again."""
    if CRASHED in session.config.stash:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_collection_finish() -> None:
    """Keep ten thousand tests and their modules out of every later collection of garbage."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the lock and remove the shared folder."""
    if LOCK in config.stash:
        config.stash[LOCK].close()
    if FOLDER in config.stash:
        shutil.rmtree(config.stash[FOLDER], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test marked ``serial`` alone. The wait for it is outside a test's time limit."""
    lock = item.config.stash.get(LOCK, None)
    if lock is None:
        return (yield)
    with lock.held(exclusive=item.get_closest_marker("serial") is not None):
        return (yield)


@pytest.fixture(autouse=True, scope="module")
def no_process_is_left() -> Iterator[None]:
    """Fail with the module that leaves a process behind. It comes first, so the module's own fixtures have ended."""
    before = set(children())
    yield
    left = LEFT_BEHIND.since(before)
    assert not left, "processes are left:\n" + "\n".join(left)


@pytest.fixture(autouse=True)
def new_processes() -> Iterator[None]:
    """Remember after which test a process was there."""
    yield
    LEFT_BEHIND.note(os.environ.get("PYTEST_CURRENT_TEST", ""))
