"""Figures of the operating system: cores and pinning, processor time and memory of a process tree."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import resource
import shutil
import socket
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import psutil

MIB = 1024 * 1024
BLOCK_BYTES = 512
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+) +(\S.*)\n(?:\w+: .*\n)*?Rss: +(\d+) kB", re.MULTILINE)
SHARED_FILES = ("/memfd:", "/dev/shm/")
LOWEST_PRIORITY = 19
PACKAGES = ("naiad", "numpy", "onnxruntime", "torch", "uvloop", "httptools", "orjson", "hpack", "protobuf", "grpcio")


def cores() -> list[int]:
    """The processor cores this process may use, in order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def can_pin() -> bool:
    """Whether server and client can each get a core of their own."""
    return shutil.which("taskset") is not None and len(cores()) >= 2


def server_core() -> int | None:
    """The core for a pinned server, None where nothing can be pinned."""
    return cores()[0] if can_pin() else None


def client_core() -> int | None:
    """The core for a pinned load generator, None where nothing can be pinned."""
    return cores()[1] if can_pin() else None


def on_core(command: list[str], core: int | None) -> list[str]:
    """``command`` bound to one core, or as it is when ``core`` is None."""
    return command if core is None else ["taskset", "-c", str(core), *command]


@contextlib.contextmanager
def held_on(pid: int, core: int | None) -> Iterator[None]:
    """All threads of a process and its living descendants on one core, and in the end on those that the process had
    before; as they are when ``core`` is None. What is started meanwhile is treated alike.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(pid)
    _place(pid, {core})
    try:
        yield
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            _place(pid, before)


def _place(pid: int, allowed: set[int]) -> None:
    for process in _tree(pid):
        # A thread, or a process, may end before it is its turn.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), allowed)


def cpu_seconds(pid: int) -> float:
    """User plus system time that a process and its living descendants have used so far."""
    total = 0.0
    for process in _tree(pid):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def finished_children_s() -> float:
    """Processor time of all programs that this process has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its living descendants."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def proportional_bytes(pid: int) -> int:
    """Memory of a process and its living descendants in which what they share counts once (PSS)."""
    total = 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total


def shared_bytes(pid: int) -> int:
    """What lies in the shared memory that a process and its living descendants have open or mapped, each file once."""
    sizes: dict[tuple[int, int], int] = {}
    for process in _tree(pid):
        # What is mapped shows as far as this process has touched it, what is open shows in full.
        for file, size in (*_mapped_files(process.pid), *_open_files(process.pid)):
            sizes[file] = max(size, sizes.get(file, 0))
    return sum(sizes.values())


def _open_files(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """The shared memory that a process has open: device and inode, bytes in all."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        # A descriptor may be closed between the listing and the look at it.
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(descriptor).startswith(SHARED_FILES):
                found = descriptor.stat()
                yield (found.st_dev, found.st_ino), found.st_blocks * BLOCK_BYTES


def _mapped_files(pid: int) -> Iterator[tuple[tuple[int, int], int]]:
    """The shared memory that a process has mapped: device and inode, resident bytes."""
    sizes: Counter[tuple[int, int]] = Counter()
    for device, inode, path, resident in MAPPING.findall(Path(f"/proc/{pid}/smaps").read_text()):
        if path.startswith(SHARED_FILES):
            major, minor = (int(part, 16) for part in device.split(":"))
            sizes[os.makedev(major, minor), int(inode)] += int(resident) * 1024
    yield from sizes.items()


def spare_core() -> int | None:
    """A core for what runs beside a pinned server: a third one, or else the load generator's; None without pinning."""
    return cores()[2] if can_pin() and len(cores()) > 2 else client_core()


def put_behind(pid: int, core: int | None) -> None:
    """Let all threads of a process run only when nothing else wants to, and only on ``core`` unless it is None."""
    if not hasattr(os, "SCHED_IDLE"):
        os.setpriority(os.PRIO_PROCESS, pid, LOWEST_PRIORITY)
        return
    for entry in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(entry.name), os.SCHED_IDLE, os.sched_param(0))
        if core is not None:
            os.sched_setaffinity(int(entry.name), {core})


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago, for servers that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def describe() -> dict[str, object]:
    """The machine and the versions that the figures depend on."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(cores()),
        "pinned": can_pin(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return names[0] if names else platform.processor()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
