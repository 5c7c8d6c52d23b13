"""The backend of bound functions: they run in threads of the server's own process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import closing

from naiad.backend_api.backend import Arrays, Backend, BackendContext, Instance
from naiad.backend_api.streaming import SIDE_BY_SIDE, StreamingBackend, StreamingInstance
from naiad.backends.callable.instance import BatchedCoroutineInstance, FunctionInstance
from naiad.binding.call import FunctionCall
from naiad.binding.function import BoundFunction, FunctionKind
from naiad.config.spec import InstanceGroupSpec, ModelSpec


def function_backend(context: BackendContext, bound: BoundFunction) -> Backend:
    """The backend of a function: one with a result for each call, or one that responds from coroutines."""
    waits = bound.kind.streams or (bound.kind is FunctionKind.COROUTINE and bound.batching is None)
    return StreamingCallableBackend(context, bound) if waits else CallableBackend(context, bound)


class CallableBackend(Backend):
    """A function with one result for each call."""

    def __init__(self, context: BackendContext, bound: BoundFunction) -> None:
        super().__init__(context)
        self._bound = bound

    def start(self, spec: ModelSpec) -> None:
        """Nothing is loaded here: each instance sets up its own copy."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """A copy of the function with a state of its own."""
        call = FunctionCall(self._bound)
        is_async = self._bound.kind is FunctionKind.COROUTINE
        return BatchedCoroutineInstance(call) if is_async else FunctionInstance(call)


class StreamingCallableBackend(StreamingBackend):
    """A coroutine, or a generator of either kind."""

    def __init__(self, context: BackendContext, bound: BoundFunction) -> None:
        super().__init__(context)
        self._bound = bound

    def start(self, spec: ModelSpec) -> None:
        """Nothing is loaded here: each instance sets up its own copy."""

    def create_streaming(self, group: InstanceGroupSpec, index: int) -> StreamingInstance:
        """A copy of the function with a state of its own."""
        return _StreamingFunction(FunctionCall(self._bound), self._bound.kind)


class _StreamingFunction(StreamingInstance):
    def __init__(self, call: FunctionCall, kind: FunctionKind) -> None:
        self._call = call
        # A plain generator computes while others would wait; what awaits leaves the thread to them.
        self.max_open = 1 if kind is FunctionKind.GENERATOR else SIDE_BY_SIDE
        by_kind: dict[FunctionKind, Callable[[Arrays], AsyncGenerator[Arrays, None]]] = {
            FunctionKind.GENERATOR: self._generated,
            FunctionKind.ASYNC_GENERATOR: call.async_generator,
            FunctionKind.COROUTINE: self._awaited,
        }
        self._responses = by_kind[kind]

    def responses(self, inputs: Arrays) -> AsyncGenerator[Arrays, None]:
        """The results for one request."""
        return self._responses(inputs)

    def close(self) -> None:
        """Tear the function down."""
        self._call.close()

    async def _awaited(self, inputs: Arrays) -> AsyncGenerator[Arrays, None]:
        yield await self._call.coroutine(inputs)

    async def _generated(self, inputs: Arrays) -> AsyncGenerator[Arrays, None]:
        # Its end closes the generator, whose ``finally`` blocks then run at once.
        with closing(self._call.generator(inputs)) as results:
            for result in results:
                yield result
