"""The backend ``repeat``: as many responses as the input has elements. For tests of decoupled models.

Source: the reference's repeat backend. Response i has the element i of ``IN`` as ``OUT`` and i as ``IDX``, and comes
``DELAY[i]`` milliseconds after the one before it. The next request begins after ``WAIT`` milliseconds, so the responses
to several requests may interleave. An empty ``IN`` gets no response. A model that is not decoupled sends only the first
response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from naiad.backend_api.decoupled import DecoupledBackend, DecoupledInstance, Delay
from naiad.backends.builtin.signature_check import Expected, check_signature
from naiad.backends.shared.signature import shape_text
from naiad.errors import InvalidArgumentError, ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from naiad.backend_api.backend import Arrays
    from naiad.backend_api.decoupled import Requester, Step
    from naiad.config.spec import InstanceGroupSpec, ModelSpec

_INPUTS = (Expected("IN", "INT32", None), Expected("DELAY", "UINT32", None), Expected("WAIT", "UINT32", (1,)))
_OUTPUTS = (Expected("OUT", "INT32", (1,)), Expected("IDX", "UINT32", (1,)))


class RepeatInstance(DecoupledInstance):
    """Repeats; see the module."""

    def steps(self, inputs: Arrays, outputs: Sequence[str], requester: Requester) -> Iterator[Step]:
        """A response for each element; an error when there is not one delay for each."""
        values, delays = inputs["IN"], inputs["DELAY"]
        if values.shape != delays.shape:
            raise InvalidArgumentError(
                f"expected IN and DELAY shape to match, got {shape_text(values.shape)} and {shape_text(delays.shape)}"
            )
        count = len(values)
        columns = {"OUT": values.reshape(count, 1), "IDX": np.arange(count, dtype=np.uint32).reshape(count, 1)}
        wanted = [(name, columns[name]) for name in outputs]
        waits = bool(delays.any())
        for index in range(count):
            if waits and (delay_ms := int(delays[index])):
                yield Delay(delay_ms / 1000)
            if requester.is_cancelled:
                return
            yield {name: column[index] for name, column in wanted}

    def busy_s(self, inputs: Arrays) -> float:
        """The delays of one request."""
        return float(inputs["WAIT"].reshape(-1)[0]) / 1000


class RepeatBackend(DecoupledBackend):
    """Sends as many responses as its input has elements; needs no model file."""

    def start(self, spec: ModelSpec) -> None:
        """Check the configuration.

        Raises:
            ModelLoadError: it batches, or does not have the tensors.
        """
        if spec.max_batch_size:
            raise ModelLoadError("repeat backend only supports models with max_batch_size == 0")
        check_signature(spec, _INPUTS, _OUTPUTS)
        given, delay = spec.inputs["IN"].dims, spec.inputs["DELAY"].dims
        if given != delay:
            raise ModelLoadError(
                f"expected IN and DELAY shape to match, got {shape_text(given)} and {shape_text(delay)}"
            )

    def create_decoupled(self, group: InstanceGroupSpec, index: int) -> DecoupledInstance:
        """An instance; all are the same."""
        return RepeatInstance()
