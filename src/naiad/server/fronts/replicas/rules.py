"""Which models front ends run themselves, and with how many instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.backends import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.config.spec import InstanceGroupSpec, ModelSpec
    from naiad.execution.model.interface import LoadedVersion
    from naiad.execution.model.loaded_model import LoadedModel
    from naiad.options import ServerOptions

MOST_BYTES: Final = 256 << 20
"""The memory of a model version above which no process but the engine's has it."""
_LIMITS: Final = frozenset(
    ("max_in_flight_requests", "max_in_flight_requests_per_model", "max_in_flight_bytes", "model_memory_budget")
)
"""Options that promise something about all requests or all models of the server."""


@dataclass(frozen=True, slots=True)
class ReplicaRules:
    """Decides for each loaded version how many instances each front end gets.

    A version has a replica in every front end if its configuration asks for as many instances as there are front ends,
    or leaves their number open, and nothing but statistics connects its requests: a queue with bounds, a delay that
    collects batches, sequences, a cache or a trace need all of them in one place.

    Args:
        fronts: the number of front ends; 0 where no model has replicas.
        is_tuned: whether a version is tuned while it serves.
    """

    fronts: int
    is_tuned: Callable[[LoadedVersion], bool]

    @classmethod
    def of(cls, options: ServerOptions, is_tuned: Callable[[LoadedVersion], bool]) -> ReplicaRules:
        """The rules under the options of the server."""
        is_bounded = (
            bool(_LIMITS & set(options.given))
            or options.model_idle_unload_secs > 0
            or options.slow_requests > 0
            or bool(options.host_policies)
            or options.limits_rate
        )
        return cls(0 if is_bounded else options.frontend_count, is_tuned)

    def share(self, model: LoadedModel, is_open: bool) -> int:
        """How many instances of a version each front end has; 0 for none.

        Args:
            is_open: its configuration as written has no instance group.
        """
        if not self.fronts or not model.is_self_contained:
            return 0
        spec = model.spec
        if not _is_plain(spec) or self.is_tuned(model) or model.statistics.memory_bytes > MOST_BYTES:
            return 0
        return max(spec.instance_count // self.fronts, int(is_open))


def _is_plain(spec: ModelSpec) -> bool:
    batching = spec.batching
    return (
        registry.settings_name(spec.backend) != registry.PYTHON
        and not (spec.decoupled or spec.is_cached or spec.accelerators)
        and spec.sequence is None
        and (batching is None or not (batching.max_queue_delay_ns or batching.preserve_ordering))
        and len(spec.instance_groups) == 1
        and _is_anywhere(spec.instance_groups[0])
    )


def _is_anywhere(group: InstanceGroupSpec) -> bool:
    return group.kind == "KIND_CPU" and not group.passive and not group.host_policy
