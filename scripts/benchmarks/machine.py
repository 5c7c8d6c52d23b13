"""What the operating system knows: cores and pinning, processor time and memory of a process tree."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from importlib import metadata

import psutil

MIB = 1024 * 1024
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


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its living descendants."""
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


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
