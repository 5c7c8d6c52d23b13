"""One format of models: what it needs, how a network is written in it, and how its framework is called directly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Caller = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Speed:
    """What a loop of calls or requests came to: calls per second and percentiles of the time of one."""

    rate: float
    p50_us: float
    p95_us: float


@dataclass(frozen=True, slots=True)
class Format:
    """A row of the table.

    Attributes:
        name: as the figures have it.
        needs: modules that must be there: packages, and the module of the backend.
        file: the model's file or folder in the folder of its version.
        backend: the field ``backend`` of the configuration.
        threads: the parameter that holds the number of threads; "" for a backend of one thread.
        networks: those that are measured in this format.
        write: writes a network to a path. Runs in a process of its own.
        load: makes the function that calls a loaded network directly, with a path and a number of threads. Imports the
            framework, and runs in a process of its own.
        tensors: the names of input and output.
        channels_last: images are [N, H, W, C].
        fields: further lines of the configuration, for a network.
        note: what the table says of it.
    """

    name: str
    needs: tuple[str, ...]
    file: str
    backend: str
    threads: str
    networks: tuple[str, ...]
    write: Callable[[str, Path], None]
    load: Callable[[Path, int], Caller]
    tensors: tuple[str, str] = ("x", "y")
    channels_last: bool = False
    fields: Callable[[str], str] = lambda network: ""
    note: str = ""

    def lacking(self) -> str:
        """The first module that is not there; "" when nothing lacks."""
        return next((module for module in self.needs if not _is_there(module)), "")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False
