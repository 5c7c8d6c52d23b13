"""How the threads of OpenMP wait, on which torch divides the work of its operators."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

_POLICY: Final = "OMP_WAIT_POLICY"
_SETTINGS: Final = (_POLICY, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def let_openmp_sleep(environment: MutableMapping[str, str]) -> None:
    """Let threads that wait for others sleep, unless the environment says how they wait.

    By default they spin. Where other work takes a core, a thread then spins out its time slice on the core that the
    thread it waits for needs, once for each operator of a network.

    Args:
        environment: of a process that has not loaded the library yet, which reads it once.
    """
    if not any(name in environment for name in _SETTINGS):
        environment[_POLICY] = "PASSIVE"
