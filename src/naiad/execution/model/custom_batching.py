"""Custom batching: a class of the model's own that decides which requests may join a batch.

Source: the custom batching hooks of the reference, which are functions of a C library there. The object is called on
the event loop, so all that it raises is caught here, and a slow call is logged. A call that never returns stops
the server.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any, Final

from naiad.config.spec import ModelSpec
from naiad.request import InferRequest, ParameterValue
from naiad.shared_memory.tensor_ref import RegionTensor
from naiad.tensor.packed_bytes import PackedStrings

logger = logging.getLogger("naiad")

SLOW_S: Final = 0.01
"""A batch that takes longer is logged: nothing else runs on the event loop meanwhile."""
PAUSE_S: Final = 10.0
"""How often the same problem is logged."""


class QueuedInput:
    """An input of a request that waits: ``shape`` with the batch dimension, ``datatype`` as ``FP32``, ``byte_size``."""

    __slots__ = ("byte_size", "datatype", "shape")

    def __init__(self, shape: tuple[int, ...], datatype: str, byte_size: int) -> None:
        self.shape = shape
        self.datatype = datatype
        self.byte_size = byte_size


class QueuedRequest:
    """A request as a strategy sees it, without the elements of its tensors."""

    __slots__ = ("_request", "_spec")

    def __init__(self, request: InferRequest, spec: ModelSpec) -> None:
        self._request = request
        self._spec = spec

    @property
    def id(self) -> str:
        """The caller's request id, "" for none."""
        return self._request.id

    @property
    def rows(self) -> int:
        """The size of its batch dimension."""
        return self._request.options.rows

    @property
    def priority(self) -> int:
        """The priority of the request, 0 for the model's default."""
        return self._request.options.priority

    @property
    def parameters(self) -> Mapping[str, ParameterValue]:
        """Custom parameters; not to be changed."""
        return self._request.options.parameters

    @property
    def correlation_id(self) -> int | str:
        """The correlation id of its sequence, 0 or "" for none."""
        return self._request.options.correlation_id

    @property
    def requested_outputs(self) -> tuple[str, ...]:
        """The outputs that the caller wants."""
        return self._request.options.outputs

    @property
    def inputs(self) -> dict[str, QueuedInput]:
        """Its inputs by name."""
        found = {}
        for name, array in self._request.inputs.items():
            dtype = self._spec.inputs[name].dtype
            size = array.nbytes
            if dtype.is_bytes and not isinstance(array, (RegionTensor, PackedStrings)):
                # As serialised: four bytes of length before each element.
                size = sum([4 + len(element) for element in array.ravel().tolist()])
            found[name] = QueuedInput(array.shape, dtype.wire, size)
        return found


class CustomBatching:
    """A model's strategy as a limit of its batches. An error, or no result, counts as yes.

    Args:
        strategy: an object of the model's class, initialised.
    """

    __slots__ = ("_begun_s", "_failures", "_logged_s", "_spec", "_state", "_strategy")

    def __init__(self, strategy: Any, spec: ModelSpec) -> None:
        self._strategy = strategy
        self._spec = spec
        self._state: Any = None
        self._failures = 0
        self._logged_s: dict[str, float] = {}
        self._begun_s = 0.0

    def begin(self, first: InferRequest) -> None:
        """Begin a batch with a new state and its first request."""
        self._begun_s = monotonic()
        self._state = self._call("batch_initialize")
        self._call("include_request", QueuedRequest(first, self._spec), self._state)

    def takes(self, request: InferRequest) -> bool:
        """Whether a request may join the batch: anything that is not false counts as yes."""
        answer = self._call("include_request", QueuedRequest(request, self._spec), self._state)
        try:
            # The truth of some objects raises, as that of arrays does.
            return answer is None or bool(answer)
        except Exception:
            self._failed("include_request")
            return True

    def end(self) -> None:
        state, self._state = self._state, None
        self._call("batch_finalize", state)
        passed_s = monotonic() - self._begun_s
        if passed_s > SLOW_S and self._may_log("slow"):
            logger.warning(
                "the batch strategy of model '%s' took %.0f ms for one batch, and the whole server waited for it",
                self._spec.name,
                1000 * passed_s,
            )

    def close(self) -> None:
        """The model is unloaded."""
        self._call("finalize")
        self._strategy = None

    def _call(self, name: str, *arguments: Any) -> Any:
        method = getattr(self._strategy, name, None)
        if method is None:
            return None
        try:
            return method(*arguments)
        except BaseException:
            # Also SystemExit, which must not end the server.
            self._failed(name)
            return None

    def _failed(self, name: str) -> None:
        self._failures += 1
        if self._may_log(name):
            logger.exception(
                "%s() of the batch strategy of model '%s' failed (%d failure(s) so far); the batch is made without it",
                name,
                self._spec.name,
                self._failures,
            )

    def _may_log(self, what: str) -> bool:
        now_s = monotonic()
        if now_s - self._logged_s.get(what, -PAUSE_S) < PAUSE_S:
            return False
        self._logged_s[what] = now_s
        return True
