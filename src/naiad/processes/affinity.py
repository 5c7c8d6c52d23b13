"""CPU affinity and memory policy: on which cores a thread and everything that it starts run, and where their memory is.

Both are properties of a thread in Linux. Threads and processes that it starts inherit them, so whatever is to be on
certain cores is created by a thread that is there. Elsewhere neither has an effect, which is warned about once.
"""

from __future__ import annotations

import ctypes
import logging
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

logger = logging.getLogger("naiad")

_R = TypeVar("_R")

_CAN_PLACE: Final = hasattr(os, "sched_setaffinity")
_NODES: Final = Path("/sys/devices/system/node/online")
# The C library has no functions for these calls of Linux: (set_mempolicy, get_mempolicy) by machine.
_CALLS: Final = {"x86_64": (238, 239), "aarch64": (237, 236)}
_BIND: Final = 2
# The size of a set of nodes, in bits: the most that Linux can be built for.
_MOST_NODES: Final = 1024
_WORD_BITS: Final = 8 * ctypes.sizeof(ctypes.c_ulong)
_NodeSet = ctypes.c_ulong * (_MOST_NODES // _WORD_BITS)


def server_cores() -> frozenset[int]:
    """The cores that this process might use when it started; empty where the system does not say."""
    return _server_cores


def memory_nodes() -> frozenset[int]:
    """The NUMA nodes of this machine; empty where the system does not say."""
    try:
        return frozenset(read_numbers(_NODES.read_text().strip()))
    except (OSError, ValueError):
        return frozenset()


def read_numbers(text: str) -> tuple[int, ...]:
    """The numbers of a list of numbers and ranges, such as ``0-3,8``, in ascending order.

    Raises:
        ValueError: it is none.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def numbers_text(numbers: Iterable[int]) -> str:
    """Numbers as a list of numbers and ranges: ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, each)) for each in ranges)


@dataclass(frozen=True, slots=True)
class Affinity:
    """Where threads run and allocate.

    Attributes:
        cores: in ascending order; empty for no restriction.
        node: the NUMA node of all memory that is allocated from then on; None for no restriction.
    """

    cores: tuple[int, ...] = ()
    node: int | None = None

    def __str__(self) -> str:
        word = "cores" if len(self.cores) > 1 else "core"
        cores = f"{word} {numbers_text(self.cores)}" if self.cores else ""
        memory = "" if self.node is None else f"memory of NUMA node {self.node}"
        return " and ".join(filter(None, (cores, memory))) or "all cores"

    def apply(self) -> None:
        """Place the calling thread, and all that it starts from now on."""
        if self.cores:
            _set_cores(self.cores)
        if self.node is not None:
            _bind_memory(self.node)

    def permitted(self) -> Affinity:
        """The same without the NUMA node where the system lets no memory be bound to it, which is one warning."""
        return self if self.node is None or _can_bind(self.node) else Affinity(self.cores)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Place the calling thread for the time of the block, and with it what it starts there."""
        if self == ANYWHERE:
            yield
            return
        cores, policy = _current_cores(), _current_memory() if self.node is not None else None
        self.apply()
        try:
            yield
        finally:
            if cores:
                _set_cores(cores)
            if policy is not None:
                _set_memory(*policy)

    def bound(self, create: Callable[[], _R]) -> Callable[[], _R]:
        """``create`` for a thread that stays here: it places the thread that calls it first."""
        if self == ANYWHERE:
            return create

        def create_here() -> _R:
            self.apply()
            return create()

        return create_here


ANYWHERE: Final = Affinity()
"""No restriction: a thread stays where the one that started it was."""


def everywhere() -> Affinity:
    """All cores that this process might use when it started, for what belongs to no instance."""
    return Affinity(tuple(sorted(_server_cores)))


def _current_cores() -> frozenset[int]:
    return frozenset(os.sched_getaffinity(0)) if _CAN_PLACE else frozenset()


# This module is imported before any thread is placed.
_server_cores: Final = _current_cores()
warned_about: Final[set[str]] = set()
"""The warnings that were logged; each is logged once."""
_tried_nodes: Final[dict[int, bool]] = {}


def _set_cores(cores: Iterable[int]) -> None:
    if not _CAN_PLACE:
        _warn("this system does not let a program choose its cores: host policies have no effect")
        return
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        # They were there when the policy was read: the set of the process has become smaller since.
        _warn(f"the cores {numbers_text(cores)} cannot be used ({error.strerror}): the system chooses others")


def _bind_memory(node: int) -> bool:
    """Whether the memory that this thread allocates from now on is on a node."""
    nodes = _NodeSet()
    nodes[node // _WORD_BITS] = 1 << node % _WORD_BITS
    reason = _set_memory(_BIND, nodes)
    if reason:
        _warn(
            f"memory cannot be bound to a NUMA node ({reason}): it is where the system puts it; a container needs the "
            f"capability SYS_NICE for it"
        )
    return not reason


def _can_bind(node: int) -> bool:
    """Whether the system lets this process bind memory to a node; tried once, in a thread that ends."""
    if node not in _tried_nodes:
        tried: list[bool] = []
        thread = threading.Thread(target=lambda: tried.append(_bind_memory(node)), name="memory policy")
        thread.start()
        thread.join()
        _tried_nodes[node] = tried[0]
    return _tried_nodes[node]


def _set_memory(mode: int, nodes: ctypes.Array[ctypes.c_ulong]) -> str:
    """Set the memory policy of this thread; the reason why it cannot be set, "" when it was."""
    calls = _CALLS.get(platform.machine()) if _CAN_PLACE else None
    if calls is None:
        return "not supported on this system"
    found = _libc().syscall(calls[0], ctypes.c_long(mode), nodes, ctypes.c_ulong(_MOST_NODES))
    return os.strerror(ctypes.get_errno()) if found else ""


def _current_memory() -> tuple[int, ctypes.Array[ctypes.c_ulong]] | None:
    """The mode and the nodes of this thread's memory policy; None where the system does not say."""
    calls = _CALLS.get(platform.machine()) if _CAN_PLACE else None
    if calls is None:
        return None
    mode, nodes = ctypes.c_int(), _NodeSet()
    zero = ctypes.c_ulong(0)
    if _libc().syscall(calls[1], ctypes.byref(mode), nodes, ctypes.c_ulong(_MOST_NODES), zero, zero):
        return None
    return mode.value, nodes


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _warn(text: str) -> None:
    """Warn once: it is true of the machine, not of one model."""
    if text not in warned_about:
        warned_about.add(text)
        logger.warning("%s", text)
