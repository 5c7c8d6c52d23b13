"""The time slices of threads, as Linux reports them."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil
import pytest

from naiad.processes.time_slice import shorten_time_slice
from naiad.testing import serving
from support.python_models import write_python_model

_Found = TypeVar("_Found")
SHORT_NS = 100_000
# Size, policy, flags, nice, priority and slice, then what only other policies have.
ATTRIBUTES = struct.Struct("IIQiIQ16x")
GET = {"x86_64": 315, "aarch64": 275}
MODEL = """
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
"""


class Attributes(NamedTuple):
    policy: int
    nice: int
    slice_ns: int


def attributes(thread: int = 0) -> Attributes:
    """Those of a thread by its number, 0 for the one that calls; a slice of 0 where the system does not say."""
    found = ctypes.create_string_buffer(ATTRIBUTES.size)
    if call := GET.get(platform.machine()):
        ctypes.CDLL(None).syscall(call, thread, found, ATTRIBUTES.size, 0)
    _, policy, _, nice, _, slice_ns = ATTRIBUTES.unpack(found.raw)
    return Attributes(policy, nice, slice_ns)


pytestmark = pytest.mark.skipif(not attributes().slice_ns, reason="this system has no time slices of threads")


def in_thread(function: Callable[[], _Found]) -> _Found:
    found: list[_Found] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_only_the_slice_changes() -> None:
    def changed() -> tuple[Attributes, Attributes]:
        before = attributes()
        shorten_time_slice()
        return before, attributes()

    before, after = in_thread(changed)
    assert after.slice_ns == SHORT_NS < before.slice_ns
    assert (after.policy, after.nice) == (before.policy, before.nice)


def test_what_the_thread_starts_has_the_usual_slice() -> None:
    def of_another() -> int:
        shorten_time_slice()
        return in_thread(attributes).slice_ns

    assert in_thread(of_another) == attributes().slice_ns > SHORT_NS


def test_a_thread_of_another_policy_keeps_it() -> None:
    def changed() -> Attributes:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        shorten_time_slice()
        return attributes()

    found = in_thread(changed)
    assert (found.policy, found.slice_ns) == (os.SCHED_BATCH, attributes().slice_ns)


def test_a_thread_with_a_raised_priority_passes_it_on() -> None:
    def changed() -> list[Attributes]:
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -1)
        except PermissionError:
            return []
        shorten_time_slice()
        return [attributes(), in_thread(attributes)]

    found = in_thread(changed)
    if not found:
        pytest.skip("this user may raise no priority")
    assert [(one.nice, one.slice_ns) for one in found] == [(-1, attributes().slice_ns)] * 2


def test_the_event_loop_of_a_server_and_not_its_models(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "m", MODEL)
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        process = psutil.Process(server.process.pid)
        assert attributes(process.pid).slice_ns == SHORT_NS
        others = [
            t.id for p in (process, *process.children(recursive=True)) for t in p.threads() if t.id != process.pid
        ]
        assert len(process.children()) == 1
        assert {attributes(thread).slice_ns for thread in others} == {attributes().slice_ns}
