"""On which cores the threads of a model run, as the system says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from naiad.processes.affinity import numbers_text, server_cores

CORES = tuple(sorted(os.sched_getaffinity(0)))[:2] if hasattr(os, "sched_getaffinity") else ()
"""Two cores of this machine, fewer where there are not two."""
POLICIES = tuple(f"--host-policy=core_{core},cpu-cores={core}" for core in CORES)
"""A policy for each of the two cores, with the option that sets it."""
ALL = numbers_text(server_cores())
"""All cores of this machine, as the system writes them."""
WHY_NOT = "it takes two cores, and a system that lets a program choose among them"


def group_on(core: int, count: int = 1) -> str:
    """The instance group of a configuration that has the policy of a core."""
    return f'instance_group [ {{ kind: KIND_CPU count: {count} host_policy: "core_{core}" }} ]\n'


def cores_of_threads(process: int) -> dict[int, str]:
    """The cores of each thread of a process, by its number: ``Cpus_allowed_list`` of the system."""
    found = {}
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread may end before it is its turn.
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            found[int(task.name)] = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))
    return found


def cores_of_new_threads(process: int, before: Mapping[int, str]) -> list[str]:
    """The cores of each thread that a process has beside those of ``before``."""
    return [cores for thread, cores in cores_of_threads(process).items() if thread not in before]


def cores_of_model_threads(server: int, before: Mapping[int, str]) -> list[str]:
    """The cores of each thread that the models have which a server has loaded since ``before``.

    One more thread is new, with the cores of the server's first thread: it waits for the next load.
    """
    found = cores_of_new_threads(server, before)
    its_cores = cores_of_threads(server)[server]
    if its_cores in found:
        found.remove(its_cores)
    return found
