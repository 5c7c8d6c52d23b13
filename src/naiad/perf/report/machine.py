"""What describes the machine that a measurement ran on, so that runs can be told apart later."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final

import psutil

from naiad.processes.cpu_quota import quota_cores
from naiad.version import __version__

_CPUS: Final = Path("/sys/devices/system/cpu")


def machine_fingerprint() -> dict[str, str]:
    """Name and value of what describes this machine: processor, cores, memory, kernel, Python, versions.

    ``governor`` is there where the system tells how the processor's frequency is chosen.
    """
    found = {
        "processor": _processor(),
        "cores": _cores(),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "naiad": __version__,
    }
    governor = _governor()
    return {**found, "governor": governor} if governor else found


def _processor() -> str:
    """The name that the processor gives itself; on systems without ``/proc`` what Python knows."""
    text = _text(Path("/proc/cpuinfo"))
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Processor", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> str:
    """The processor's cores, and how many of them this process may use if fewer."""
    present = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
    quota = quota_cores()
    if quota is not None and quota < usable:
        return f"{quota:g} of {present}"
    return str(present) if usable == present else f"{usable} of {present}"


def _governor() -> str:
    governors = {_text(file) for file in sorted(_CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor"))}
    return ", ".join(sorted(governors - {""}))


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
