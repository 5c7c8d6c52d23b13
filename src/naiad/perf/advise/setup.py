"""The configurations that are tried: dynamic batching on and off, one and two instances of each group."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from naiad.perf.target.model_text import instances_of

MAX_IN_FLIGHT: Final = 512
"""Each of them may take a connection, and most systems allow a process about a thousand files."""
_TRIED_COUNTS: Final = (1, 2)


class UnadvisableError(Exception):
    """The model has nothing that could be tried: the text says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class ModelSetup:
    """One configuration.

    Attributes:
        is_batching: whether requests are batched by the server (``dynamic_batching``).
        counts: the ``count`` of each instance group.
        instances: how many instances the groups make together.
        config: the whole configuration, as the protocol shows it.
        is_served: whether the server has it when the trial begins.
    """

    is_batching: bool
    counts: tuple[int, ...]
    instances: int
    config: Mapping[str, Any]
    is_served: bool = False

    @property
    def max_batch_size(self) -> int:
        """The most rows of a batch; 0 where tensors have no batch dimension."""
        return int(self.config.get("max_batch_size", 0))

    @property
    def instances_name(self) -> str:
        """``1 instance`` or ``2 instances``."""
        return f"{self.instances} instance{'s' * (self.instances != 1)}"

    @property
    def name(self) -> str:
        """``batching on, 2 instances``; without the first part where the model takes no batches."""
        if not self.max_batch_size:
            return self.instances_name
        return f"batching {'on' if self.is_batching else 'off'}, {self.instances_name}"

    def in_flight(self, batch_size: int) -> int:
        """How many requests keep all instances busy: two batches for each of them, one that runs and one that waits.

        Args:
            batch_size: rows of each request.
        """
        rows = max(self.max_batch_size, 1) if self.is_batching else batch_size
        return min(math.ceil(2 * rows * self.instances / batch_size), MAX_IN_FLIGHT)


def setups_of(config: Mapping[str, Any]) -> list[ModelSetup]:
    """The setups that are tried for a model, the present one first.

    Args:
        config: the configuration as the server has completed it.

    Raises:
        UnadvisableError: the model has no instances or batches of its own, or answers with streams.
    """
    _check(config)
    served = _setup(config, is_served=True)
    found = [served]
    kinds = (False, True) if served.max_batch_size else (False,)
    for counts in _TRIED_COUNTS:
        for is_batching in kinds:
            made = _setup(_changed(config, is_batching, counts))
            if (made.is_batching, made.counts) != (served.is_batching, served.counts):
                found.append(made)
    return found


def _check(config: Mapping[str, Any]) -> None:
    name = config.get("name", "")
    if "ensemble_scheduling" in config:
        steps = config["ensemble_scheduling"].get("step", [])
        models = ", ".join(dict.fromkeys(str(step.get("model_name")) for step in steps))
        raise UnadvisableError(
            f"'{name}' is an ensemble: it has no instances and no batches of its own; ask for advice about the models "
            f"of its steps: {models}"
        )
    if config.get("model_transaction_policy", {}).get("decoupled"):
        raise UnadvisableError(
            f"'{name}' is decoupled: its requests have any number of responses over a stream, and advise compares "
            "rates of single responses; measure it with naiad perf --streaming -i grpc"
        )
    if "sequence_batching" in config:
        raise UnadvisableError(
            f"'{name}' has sequence_batching, which puts sequences into batches by itself; measure it with naiad perf "
            "--concurrency-range, as many as there are sequences"
        )


def _setup(config: Mapping[str, Any], *, is_served: bool = False) -> ModelSetup:
    groups = config.get("instance_group", [])
    return ModelSetup(
        is_batching="dynamic_batching" in config,
        counts=tuple(max(int(group.get("count", 1)), 1) for group in groups),
        instances=max(sum(map(instances_of, groups)), 1),
        config=config,
        is_served=is_served,
    )


def _changed(config: Mapping[str, Any], is_batching: bool, count: int) -> dict[str, Any]:
    made = {name: value for name, value in config.items() if name != "dynamic_batching"}
    if is_batching:
        made["dynamic_batching"] = config.get("dynamic_batching", {})
    groups = config.get("instance_group") or [{}]
    made["instance_group"] = [{**group, "count": count} for group in groups]
    return made
