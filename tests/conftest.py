"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from room import Room

# How long an example takes says more about the machine than about the code; a test as a whole has its time limit.
settings.register_profile("naiad", deadline=None)
settings.load_profile("naiad")

# Tests start some two thousand servers and workers. Without bytecode each would compile every module again, which takes
# longer than all the rest of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Of this process: the room it shares with the others of a run under pytest-xdist, or the folder it made for them.
ROOM = pytest.StashKey[Room]()
FOLDER = pytest.StashKey[Path]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist where the files of the room are."""
    stash = node.config.stash
    if FOLDER not in stash:
        stash[FOLDER] = Path(tempfile.mkdtemp(prefix="naiad-tests-"))
    node.workerinput["room"] = str(stash[FOLDER])


def pytest_configure(config: pytest.Config) -> None:
    """Open the room in a process of pytest-xdist, with a temporary folder of its own for all that is started there."""
    given = getattr(config, "workerinput", {})
    if "room" in given:
        config.stash[ROOM] = Room(Path(given["room"]))
        temporary = Path(given["room"]) / given["workerid"]
        temporary.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)


def pytest_collection_finish() -> None:
    """Keep ten thousand tests and their modules out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close the room and remove its files."""
    if ROOM in config.stash:
        config.stash[ROOM].close()
    if FOLDER in config.stash:
        shutil.rmtree(config.stash[FOLDER], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a test marked ``serial`` alone. The wait for it is outside a test's time limit."""
    room = item.config.stash.get(ROOM, None)
    if room is None:
        return (yield)
    with room.entered(alone=item.get_closest_marker("serial") is not None):
        return (yield)
