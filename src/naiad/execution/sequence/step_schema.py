"""The facts of steps: the options that steps of any sequence share, and the parts that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from naiad.bounded_dict import BoundedDict
from naiad.config.sequence import run_spec
from naiad.config.spec import ModelSpec
from naiad.execution.batching.step_row import StepFacts
from naiad.request import Array, RequestOptions
from naiad.worker.ipc.frame_body import PADDING
from naiad.worker.ipc.frames import ALIGNMENT, STEP

# The timeout is a caller's choice, so the number of kinds has no other bound.
_MAX_KINDS: Final = 64


class FactMaker:
    """Finds the facts of the steps of one model; the controls of a step are the tensors ``controls`` of its inputs."""

    def __init__(self, spec: ModelSpec, controls: Iterable[str]) -> None:
        self._controls = tuple(controls)
        self._kinds: dict[object, RequestOptions] = BoundedDict(_MAX_KINDS)
        # A step whose tensors vary in size has to be described by itself.
        seen = run_spec(spec).inputs.values()
        self._is_known = spec.assembly is None and not any(
            tensor.dtype.is_bytes or tensor.dtype.wire == "BF16" or tensor.allow_ragged_batch for tensor in seen
        )

    def find(self, options: RequestOptions, inputs: Mapping[str, Array]) -> StepFacts | None:
        """The facts of a step with these options and inputs; None for a step that has to be described by itself."""
        correlation_id = options.correlation_id
        if not self._is_known or options.parameters or options.regions is not None or isinstance(correlation_id, str):
            return None
        said = STEP.pack(correlation_id, options.flags, 0)
        parts = [inputs[name].tobytes() for name in self._controls]
        return StepFacts(
            self._kind(options), said, b"".join([part + PADDING[-len(part) % ALIGNMENT] for part in parts])
        )

    def _kind(self, options: RequestOptions) -> RequestOptions:
        key = options.outputs, options.shape_key, options.timeout_us
        found = self._kinds.get(key)
        if found is None:
            found = RequestOptions(options.outputs, 1, options.shape_key, timeout_us=options.timeout_us)
            self._kinds[key] = found
        return found
