"""Threads and processes are where an affinity says, and so is what they start."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from naiad.processes import affinity
from naiad.processes.affinity import ANYWHERE, Affinity, memory_nodes, numbers_text, read_numbers, server_cores
from naiad.processes.process_group import GroupedProcess
from support.core_policies import CORES, WHY_NOT

needs_two = pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT)
needs_nodes = pytest.mark.skipif(not memory_nodes(), reason="the system does not say which NUMA nodes there are")
MISSING_NODE = 1023


@pytest.fixture(autouse=True)
def _unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "warned_about", set())


def in_thread(call: Any) -> Any:
    """What ``call`` gives in a thread of its own, whose end undoes what it did to the thread."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def allowed() -> set[int]:
    return os.sched_getaffinity(0)


@needs_two
def test_a_thread_and_what_it_starts_stay_on_its_cores() -> None:
    first = Affinity(CORES[:1])
    assert in_thread(first.bound(lambda: (allowed(), in_thread(allowed)))) == ({CORES[0]}, {CORES[0]})
    assert allowed() == server_cores()


@needs_two
def test_a_block_places_its_thread_and_puts_it_back() -> None:
    with Affinity(CORES[:1]).held():
        with Affinity(CORES[1:]).held():
            assert allowed() == {CORES[1]}
        assert allowed() == {CORES[0]}
        with ANYWHERE.held():
            assert allowed() == {CORES[0]}
    assert allowed() == server_cores()


@needs_two
def test_a_process_begins_on_its_cores(tmp_path: Path) -> None:
    said = tmp_path / "said"
    program = f"import os, pathlib; pathlib.Path({str(said)!r}).write_text(repr(os.sched_getaffinity(0)))"
    assert GroupedProcess([sys.executable, "-c", program], affinity=Affinity(CORES[1:])).wait(30) == 0
    assert said.read_text() == repr({CORES[1]})
    assert allowed() == server_cores()


@needs_nodes
def test_memory_is_bound_to_the_node_for_the_block() -> None:
    node = min(memory_nodes())

    def bound() -> tuple[bool, bool]:
        with Affinity(node=node).held():
            inside = _policies()
        return inside, _policies()

    inside, after = in_thread(bound)
    if not inside:
        pytest.skip("this machine does not permit a memory policy")
    assert (inside, after) == (True, False)


def _policies() -> bool:
    """Whether memory that this thread allocates now is bound to a node."""
    with mmap.mmap(-1, 1 << 20) as memory:
        memory.write(b"x" * (1 << 20))
        first = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(first)
        del first
        # Other memory of this process may have policies of its own.
        lines = [line.split() for line in Path("/proc/thread-self/numa_maps").read_text().splitlines()]
        return max((int(line[0], 16), line[1]) for line in lines if int(line[0], 16) <= address)[1].startswith("bind:")


@needs_nodes
def test_memory_that_cannot_be_bound_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def bind_twice() -> set[int]:
        Affinity(node=MISSING_NODE).apply()
        with Affinity(CORES, MISSING_NODE).held():
            return allowed()

    with caplog.at_level(logging.WARNING, "naiad"):
        assert in_thread(bind_twice) == set(CORES)
    (record,) = caplog.records
    assert "memory cannot be bound to a NUMA node (Invalid argument)" in record.getMessage()


def test_cores_that_are_gone_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "naiad"):
        in_thread(Affinity((900, 901)).apply)
        in_thread(Affinity((900, 901)).apply)
    (record,) = caplog.records
    assert record.getMessage().startswith("the cores 900-901 cannot be used (")


def test_lists_of_numbers() -> None:
    assert read_numbers("0-3,8,2") == (0, 1, 2, 3, 8)
    assert numbers_text((8, 0, 1, 2, 3, 5, 6)) == "0-3,5-6,8"
    assert [str(each) for each in (ANYWHERE, Affinity((1,)), Affinity((0, 1), 2), Affinity(node=0))] == [
        "all cores",
        "core 1",
        "cores 0-1 and memory of NUMA node 2",
        "memory of NUMA node 0",
    ]
