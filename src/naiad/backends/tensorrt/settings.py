"""The settings of a TensorRT plan: parameters, ``--backend-config``, and the parts of ``optimization`` about GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.backends.shared.parameters import ParameterReader
from naiad.backends.tensorrt.graph_specs import GraphSpec
from naiad.config.freeze import parameters
from naiad.config.messages import enum_name
from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from naiad.backend_api.backend import BackendContext

STRATEGY: Final = "execution_context_allocation_strategy"
STRATEGIES: Final = ("STATIC", "ON_PROFILE_CHANGE")
_POLICIES: Final = ("DEVICE_BLOCKING", "BLOCKING")


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """How a plan is loaded and run.

    Attributes:
        strategy: when memory of an execution context is allocated, of ``STRATEGIES``.
        plugins: libraries that are loaded before the plan.
        version_compatible: the plan may hold a runtime of its own, whose code then runs in this process.
        priority: of its work among that of other models on the GPU: ``PRIORITY_MAX``, ``_MIN`` or ``_DEFAULT``.
        busy_waits: a thread that waits for the GPU keeps its core: some microseconds less for a core that does
            nothing else.
        captures: runs are captured as CUDA graphs.
        graph_specs: what is captured; empty for batches of usual sizes.
        pinned: the host's copies of the inputs, and of the outputs, lie in pinned memory.
    """

    strategy: str = "STATIC"
    plugins: tuple[str, ...] = ()
    version_compatible: bool = False
    priority: str = "PRIORITY_DEFAULT"
    busy_waits: bool = False
    captures: bool = False
    graph_specs: tuple[GraphSpec, ...] = ()
    pinned: tuple[bool, bool] = (True, True)


def read_settings(context: BackendContext, config: Any) -> PlanSettings:
    """The settings of a model.

    Source: the parameters and the backend configuration of the reference's tensorrt backend.
    ``coalesce-request-input`` and ``execution-policy`` are checked and have no effect: a batch is one tensor before it
    is copied, and each instance has a thread that waits for its GPU.

    Raises:
        ModelLoadError: a value does not fit; the text names it.
    """
    given = parameters(config)
    reader = ParameterReader(context.model, given)
    backend = ParameterReader(context.model, context.backend_config, "backend config setting")
    strategy = reader.text(STRATEGY) or STRATEGIES[0]
    if strategy not in STRATEGIES:
        raise reader.refused(STRATEGY, " or ".join(STRATEGIES))
    if (backend.text("execution-policy") or _POLICIES[0]) not in _POLICIES:
        raise backend.refused("execution-policy", " or ".join(_POLICIES))
    backend.boolean("coalesce-request-input", False)
    optimization = config.optimization
    return PlanSettings(
        strategy=strategy,
        plugins=tuple(path for path in (backend.text("plugins") or "").split(";") if path),
        version_compatible=backend.boolean("version-compatible", False),
        priority=enum_name(optimization, "priority"),
        busy_waits=optimization.cuda.busy_wait_events,
        captures=optimization.cuda.graphs,
        graph_specs=tuple(_graph_spec(context.model, spec) for spec in optimization.cuda.graph_spec),
        pinned=(_is_enabled(optimization, "input"), _is_enabled(optimization, "output")),
    )


def profile_numbers(model: str, names: tuple[str, ...], count: int) -> tuple[int, ...]:
    """The optimisation profiles of an instance group, of the ``count`` that a plan has; the first without names.

    Raises:
        ModelLoadError: the plan has no such profile.
    """
    for name in names:
        if not (name.isascii() and name.isdigit() and int(name) < count):
            known = "only 0" if count == 1 else f"0 to {count - 1}"
            raise ModelLoadError(
                f"model '{model}': instance_group.profile is \"{name}\", and the plan has the optimisation profiles "
                f"{known}; name one of them, or build the plan with more"
            )
    return tuple(dict.fromkeys(map(int, names))) or (0,)


def _is_enabled(optimization: Any, role: str) -> bool:
    name = f"{role}_pinned_memory"
    return not optimization.HasField(name) or bool(getattr(optimization, name).enable)


def _graph_spec(model: str, spec: Any) -> GraphSpec:
    lower = 0
    shapes = _shapes(spec.input)
    if spec.HasField("graph_lower_bound"):
        bound = spec.graph_lower_bound
        lower = bound.batch_size
        if _shapes(bound.input) != shapes or not 0 < lower <= spec.batch_size:
            raise ModelLoadError(
                f"model '{model}': optimization.cuda.graph_spec.graph_lower_bound may differ from its graph_spec in a "
                f"smaller batch_size alone; found batch_size {lower} for {spec.batch_size}, and inputs "
                f"{_shapes(bound.input)} for {shapes}"
            )
    return GraphSpec(spec.batch_size, shapes, lower)


def _shapes(found: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(shape.dim) for name, shape in sorted(found.items())}
