"""Limits of models that run in processes: how long a batch may run, and how much memory the process may have.

Each is a parameter of the model and, for all models of a backend, a setting of ``--backend-config``, under the same
name. The model's own wins; 0 is no limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError

EXECUTE: Final = "execute-timeout-seconds"
MEMORY: Final = "memory-limit-mb"
MAX_PROCESSES: Final = 256
"""Processes of one model; each takes tens of megabytes before it has loaded anything."""
_MEGABYTE: Final = 1 << 20
_MOST_MEGABYTES: Final = 1 << 30
_LONGEST_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of one process. 0 is no limit.

    Attributes:
        execute_s: how long one batch may run.
        memory_bytes: how much private memory the process may have.
    """

    execute_s: float = 0.0
    memory_bytes: int = 0


def check_processes(spec: ModelSpec) -> None:
    """Check that a model whose instances are processes does not ask for too many of them.

    Raises:
        ModelLoadError: it does.
    """
    count = sum(group.count for group in spec.instance_groups)
    if count > MAX_PROCESSES:
        raise ModelLoadError(
            f"the instance groups of model '{spec.name}' ask for {count} instances, each of which is a process, and a "
            f"model has at most {MAX_PROCESSES} processes; lower the counts of 'instance_group'"
        )


def read_limits(backend: str, model: str, parameters: Mapping[str, str], settings: Mapping[str, str]) -> WorkerLimits:
    """The limits that a model has.

    Args:
        backend: its name, for texts.
        parameters: of the model's configuration.
        settings: the ``--backend-config`` of the backend.

    Raises:
        ModelLoadError: a value is no such limit.
    """
    return WorkerLimits(
        _seconds(*_found(EXECUTE, backend, model, parameters, settings)),
        _megabytes(*_found(MEMORY, backend, model, parameters, settings)) * _MEGABYTE,
    )


def _found(
    name: str, backend: str, model: str, parameters: Mapping[str, str], settings: Mapping[str, str]
) -> tuple[str, str]:
    """The text of a limit and where it is written."""
    if name in parameters:
        return parameters[name], f"model '{model}': parameter '{name}'"
    return settings.get(name, "0"), f"--backend-config={backend},{name}"


def _seconds(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # In this direction NaN is refused as well.
    if not 0 <= value <= _LONGEST_S:
        raise ModelLoadError(f'{place} is "{text}", expected a number of seconds, 0 for no limit')
    return value


def _megabytes(text: str, place: str) -> int:
    # ``int`` takes more than digits, and raises for texts of thousands of them.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
    if not 0 <= value <= _MOST_MEGABYTES:
        raise ModelLoadError(f'{place} is "{text}", expected a whole number of megabytes, 0 for no limit')
    return value
