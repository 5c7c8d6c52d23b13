"""Load commands of the server to a framework's worker. Both are the same version of this package."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from naiad.backend_api.backend import BackendContext
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.processes.affinity import ANYWHERE, Affinity
from naiad.worker.ipc.frames import VERSION


@dataclass(frozen=True, slots=True)
class LoadCommand:
    """One step of loading a model. ``serve`` includes ``start``, unless that was done.

    Attributes:
        step: ``uses_gpus`` (ask whether the framework can), ``complete`` (fill the configuration in), ``start`` (load
            the model) or ``serve`` (make an instance).
        key: equal for all instances of one loaded version, which share a backend where they share a process.
        backend: its name.
        config: the configuration message, serialised.
        spec: from ``start`` on; ``group`` and ``index`` of the instance, ``name`` its name, for ``serve``.
        remedy: what to do when the framework cannot be imported; "" for the usual text.
        affinity: where the instance runs.
    """

    step: str
    key: str
    backend: str
    context: BackendContext
    config: bytes = b""
    spec: ModelSpec | None = None
    group: InstanceGroupSpec | None = None
    index: int = 0
    name: str = ""
    remedy: str = ""
    affinity: Affinity = ANYWHERE


def pack(command: LoadCommand) -> dict[str, Any]:
    """The content of an ``INIT`` frame."""
    return {"version": VERSION, "orders": base64.b64encode(pickle.dumps(command)).decode()}


def unpack(content: Mapping[str, Any]) -> LoadCommand:
    """The load command that an ``INIT`` frame holds. It comes from the process that started this one."""
    found = pickle.loads(base64.b64decode(content["orders"]))
    if not isinstance(found, LoadCommand):
        raise TypeError(f"an INIT frame of a framework's process holds {type(found).__name__}, expected LoadCommand")
    return found
