"""``ensemble_scheduling``: the steps that an ensemble is made of, as its configuration states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

WHEN: Final = "when"
UNLESS: Final = "unless"
"""Keys of a step's ``input_map`` that are no inputs of its model, unless that has inputs of these names: the step runs
only where a tensor of the ensemble is true, or only where it is not."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step.

    Attributes:
        index: its place in the configuration, from 0.
        model: the name of the model that it runs, with its namespace before it where the step names one.
        version: the version that it runs; None for the default of requests without a version.
        inputs, outputs: pairs of a name in the model and a tensor of the ensemble, by name.
    """

    index: int
    model: str
    version: int | None
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EnsembleSpec:
    """All steps. ``max_inflight`` is how many requests of one step may run at a time, 0 for any number."""

    steps: tuple[StepSpec, ...]
    max_inflight: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The models of the steps, each once, in the order of the steps."""
        return tuple(dict.fromkeys(step.model for step in self.steps))


def ensemble_of(config: Any) -> EnsembleSpec | None:
    """The graph of a configuration message; None when it is no ensemble."""
    if not config.HasField("ensemble_scheduling"):
        return None
    scheduling = config.ensemble_scheduling
    steps = tuple(_step(index, step) for index, step in enumerate(scheduling.step))
    return EnsembleSpec(steps, scheduling.max_inflight_requests)


def are_exclusive(one: Any, other: Any) -> bool:
    """Whether two steps never run both, by their ``input_map``: one runs when a tensor is true, the other unless."""

    def differ(first: Any, second: Any) -> bool:
        return WHEN in first and UNLESS in second and first[WHEN] == second[UNLESS]

    return differ(one, other) or differ(other, one)


def _step(index: int, step: Any) -> StepSpec:
    return StepSpec(
        index=index,
        model=f"{step.model_namespace}/{step.model_name}" if step.model_namespace else step.model_name,
        # The protocol buffer's default is 0, which no version has: the reference says that it is not loaded.
        version=None if step.model_version == -1 else step.model_version,
        # Sorted, since the maps of a message have no order, and equal configurations give equal specifications.
        inputs=tuple(sorted(step.input_map.items())),
        outputs=tuple(sorted(step.output_map.items())),
    )
