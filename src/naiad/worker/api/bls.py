"""Calls of other models: ``InferenceRequest.exec`` and ``async_exec``."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Protocol

from ..ipc.errors import CODES_BY_GRPC, ErrorCode, TritonError, TritonModelException
from ..ipc.frame_body import aligned
from ..ipc.frames import FLAG_EMPTY, FLAG_ERROR, FLAG_FINAL, RESPONSE_HEAD
from ..ipc.reader import Waiter
from ..ipc.schemas import Schemas
from . import current
from .inference_response import InferenceResponse
from .tensor import Tensor, received

if TYPE_CHECKING:
    import asyncio

    from ..ipc.types import Locate
    from .call_options import BlsCallOptions
    from .host import Host


class OutgoingRequest(Protocol):
    """A request that a model made itself, as far as a call reads it."""

    _flags: int
    _options: BlsCallOptions | None

    def request_id(self) -> str:
        """The id, "" for none."""

    def _tensors(self) -> list[Tensor]:
        """The inputs."""


class BlsCall:
    """A call under way. Responses are delivered by whichever thread reads from the server."""

    __slots__ = ("_decoupled", "_listeners", "finished", "host", "number", "responses", "waiter")

    def __init__(self, host: Host, decoupled: bool) -> None:
        self.host = host
        self.number = 0
        self._decoupled = decoupled
        self.responses: deque[InferenceResponse] = deque()
        self.finished = False
        self.waiter = Waiter()
        self._listeners: list[Callable[[], object]] = []

    def deliver(self, response: InferenceResponse | None, final: bool) -> None:
        """Take a response over, and note the end.

        A decoupled call whose end comes alone gets an empty last response, as in the reference: models count them.
        """
        if response is None and final and self._decoupled:
            response = InferenceResponse()
        if response is not None:
            self.responses.append(response)
        # After the response: a waiter that sees the end takes what is there, and leaves.
        self.finished = self.finished or final
        self.waiter.wake()
        # A copy: the loops of other threads remove their listeners meanwhile.
        for listener in list(self._listeners):
            listener()

    def has_news(self) -> bool:
        """Whether there is a response to take, or none will come."""
        return bool(self.responses) or self.finished

    def is_finished(self) -> bool:
        """Whether all responses are there."""
        return self.finished

    def wait(self, ready: Callable[[], bool]) -> None:
        """Block until ``ready()``, one of the two above."""
        self.host.channel.wait_until(ready, self.waiter)

    def when(self, ready: Callable[[], bool], result: Callable[[], Any]) -> asyncio.Future[Any]:
        """A future of the running loop, which has ``result()`` when ``ready()``."""
        import asyncio  # Only some models need it, and it takes 20 ms and 4 MB.

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        own_thread = threading.get_ident()

        def settle() -> None:
            if not future.done() and ready():
                future.set_result(result())

        def listener() -> None:
            if threading.get_ident() == own_thread:
                settle()
            elif not loop.is_closed():
                # It may be closed by now, and then nobody waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(settle)

        def done(_: object) -> None:
            self._listeners.remove(listener)
            self.host.stop_reading_in(loop)

        self._listeners.append(listener)
        # Otherwise nobody might read: the main thread may wait for this loop.
        self.host.read_in(loop)
        future.add_done_callback(done)
        # The response may have come before the listener did.
        settle()
        return future

    def single(self) -> InferenceResponse:
        """The one response of a call that is not decoupled."""
        if self.responses:
            return self.responses[0]
        return InferenceResponse(error=TritonError("Unexpected empty response."))

    def cancel(self) -> None:
        """Cancel the call: nobody waits for the rest."""
        if not self.finished:
            self.host.cancel_call(self.number)


class ResponseIterator:
    """The responses to a decoupled call, as they come; the last may be empty. Also for ``async for``.

    Iterating again begins at the first.
    """

    def __init__(self, call: BlsCall) -> None:
        self._call = call
        self._seen: list[InferenceResponse] = []
        self._at = 0

    def __iter__(self) -> Iterator[InferenceResponse]:
        self._rewind()
        return self

    def __next__(self) -> InferenceResponse:
        if self._at == len(self._seen):
            self._call.wait(self._call.has_news)
        response = self._take()
        if response is None:
            raise StopIteration
        return response

    def __aiter__(self) -> ResponseIterator:
        self._rewind()
        return self

    async def __anext__(self) -> InferenceResponse:
        if self._at == len(self._seen):
            await self._call.when(self._call.has_news, lambda: None)
        response = self._take()
        if response is None:
            raise StopAsyncIteration
        return response

    def cancel(self) -> None:
        """Cancel the call. Responses that are under way still come."""
        self._call.cancel()

    def _rewind(self) -> None:
        # Only a loop over all responses begins anew: after a break the next one goes on behind it.
        if self._call.finished and not self._call.responses and self._at == len(self._seen):
            self._at = 0

    def _take(self) -> InferenceResponse | None:
        if self._at == len(self._seen):
            if not self._call.responses:
                return None
            self._seen.append(self._call.responses.popleft())
        self._at += 1
        return self._seen[self._at - 1]


def execute(request: OutgoingRequest, decoupled: bool) -> Any:
    """Call and wait, as ``InferenceRequest.exec`` says."""
    call = _start(request, decoupled)
    if decoupled:
        return ResponseIterator(call)
    call.wait(call.is_finished)
    return call.single()


def execute_async(request: OutgoingRequest, decoupled: bool) -> asyncio.Future[Any]:
    """Call, as ``InferenceRequest.async_exec`` says. Cancelling the future cancels the call."""
    import asyncio

    # Raises outside a loop, before anything is sent.
    asyncio.get_running_loop()
    call = _start(request, decoupled)
    if decoupled:
        future = call.when(call.has_news, lambda: ResponseIterator(call))
    else:
        future = call.when(call.is_finished, call.single)
    future.add_done_callback(lambda f: call.cancel() if f.cancelled() else None)
    return future


def _start(request: OutgoingRequest, decoupled: bool) -> BlsCall:
    options = request._options
    if options is None:
        raise TritonModelException("A request that the model received cannot be executed: make a new InferenceRequest")
    head, schema = options.as_head(request.request_id(), decoupled), options.as_schema(request._flags, decoupled)
    call = BlsCall(current.running(), decoupled)
    call.number = call.host.start_call(head, request._tensors(), schema, call.deliver)
    return call


def read_response(schemas: Schemas, locate: Locate, payload: bytearray) -> tuple[InferenceResponse | None, bool]:
    """The response that a ``CALL_RESPONSE`` frame holds, None for an end without one, and whether it is the last."""
    _, schema_number, flags, error_bytes, _ = RESPONSE_HEAD.unpack_from(payload)
    final = bool(flags & FLAG_FINAL)
    at = RESPONSE_HEAD.size
    if flags & FLAG_ERROR:
        return InferenceResponse(error=_read_error(payload[at : at + error_bytes])), final
    if flags & FLAG_EMPTY:
        return None, final
    response = InferenceResponse()
    if schema_number:
        schema = schemas[schema_number]
        places = schema.places.unpack_from(payload, at)
        located = locate(payload, places, aligned(at + schema.places.size))
        response._tensors = [received(*t, place) for t, place in zip(schema.tensors, located)]
        response._parameters = schema.parameters_json
    return response, final


def _read_error(payload: bytearray) -> TritonError:
    content: Mapping[str, Any] = json.loads(payload)
    code = CODES_BY_GRPC.get(content.get("code", 0), ErrorCode.INTERNAL)
    return TritonError(content["message"], code)
