"""Runs inference functions in threads of the program."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from naiad.backend_api.backend import Arrays, BackendContext
from naiad.backend_api.streaming import SIDE_BY_SIDE, CallerRequest, RequestListBackend, RequestListInstance
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.pytriton.decorators.context import TritonContext
from naiad.pytriton.exceptions import PyTritonUnrecoverableError
from naiad.pytriton.serving.infer_call import InferCall, InferFunction

logger = logging.getLogger("naiad")

Failed = Callable[[str], object]
"""Called with the text of an error after which a function cannot run again, in the function's thread."""


class InferBackend(RequestListBackend):
    """The functions of one model: each instance has one.

    Args:
        functions: by the number of the instance.
        deadline_s: of a request; 0 for none.
        failed: called when a function cannot run again.
    """

    def __init__(
        self,
        context: BackendContext,
        functions: Sequence[InferFunction],
        triton_context: TritonContext,
        deadline_s: float,
        failed: Failed,
    ) -> None:
        super().__init__(context)
        self._functions = functions
        self._triton_context = triton_context
        self._deadline_s = deadline_s
        self._failed = failed

    def start(self, spec: ModelSpec) -> None:
        """Nothing is loaded here: the program has done that."""

    def create_request_list(self, group: InstanceGroupSpec, index: int) -> RequestListInstance:
        """The instance of the ``index``-th function, warmed up."""
        given = self._functions[index % len(self._functions)]
        call = InferCall(given, self._triton_context)
        if given.warmups:
            # This thread's own loop begins later.
            loop = asyncio.new_event_loop()
            try:
                loop.run_until_complete(call.warm_up(given.warmups, logger.warning))
            finally:
                loop.close()
        return _InferInstance(call, given, self._deadline_s, self._failed)


class _InferInstance(RequestListInstance):
    def __init__(self, call: InferCall, given: InferFunction, deadline_s: float, failed: Failed) -> None:
        self._call = call
        self._failed = failed
        self.deadline_s = deadline_s
        # As in the original: batches of a decoupled model take turns with each response.
        self.max_open = SIDE_BY_SIDE if given.config.decoupled else 1

    async def responses(self, requests: Sequence[CallerRequest]) -> AsyncGenerator[Sequence[Arrays], None]:
        """The results of the function."""
        given = [self._call.request(r.inputs, r.parameters, r.outputs) for r in requests]
        try:
            async with aclosing(self._call.responses(given)) as responses:
                async for outputs in responses:
                    yield outputs
        except PyTritonUnrecoverableError as error:
            self._failed(str(error))
            raise
