"""How the threads of OpenBLAS wait, on which numpy divides products of matrices."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

_TIMEOUT: Final = "OPENBLAS_THREAD_TIMEOUT"
_TWO_TO_THE: Final = "16"
"""The cycles of the processor for which a thread spins, as their logarithm: some 25 us. By default it is 0.1 s."""


def let_openblas_sleep(environment: MutableMapping[str, str]) -> None:
    """Let threads sleep soon that wait for work, unless the environment says how long they spin.

    They begin with the import of numpy, so a process that starts would keep all cores busy for 0.1 s, and the server's
    event loop from running. Products one after the other take as long as before; one after a pause takes some 30 us
    longer.

    Args:
        environment: of a process that has not loaded the library yet, which reads it once.
    """
    environment.setdefault(_TIMEOUT, _TWO_TO_THE)
