"""Responses to a request of the program, as iterators for threads and for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from naiad.errors import InvalidArgumentError, NaiadError
from naiad.inprocess.tensors import LocalTensor, output_tensors
from naiad.request import Array, Outputs, ParameterValue

if TYPE_CHECKING:
    from naiad.inprocess.request import NamedModel, PendingRequest

MAX_UNREAD: Final = 64
"""Responses that wait for their reader before the model is paused."""

Delivery = tuple[Mapping[str, Array] | None, NaiadError | None, bool]


@dataclass(slots=True)
class LocalResponse:
    """A response; ``naiad.api.InferenceResponse``.

    Attributes:
        model: which responded.
        request_id: of its request.
        parameters: the model's own.
        outputs: by name; empty for an error, and for the end of a stream alone.
        error: why the request failed.
        final: no response follows.
    """

    model: NamedModel
    request_id: str | None = None
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    outputs: dict[str, LocalTensor] = field(default_factory=dict)
    error: NaiadError | None = None
    classification_label: str | None = None
    final: bool = False


class FlowControl(Protocol):
    """What a reader asks of the engine, from its own thread."""

    def cancel(self, pending: PendingRequest) -> None:
        """Give the request up."""

    def pause(self, pending: PendingRequest) -> None:
        """Have the model make no further responses. Called on the event loop."""

    def resume(self, pending: PendingRequest) -> None:
        """Have the model go on."""


class ResponseFlow:
    """Counts the responses that wait for their reader, and pauses the model for a reader that is slow.

    The event loop alone counts what it delivers, and the reader alone what it takes.
    """

    __slots__ = ("_control", "_delivered", "_is_paused", "_pending", "_taken")

    def __init__(self, control: FlowControl) -> None:
        self._control = control
        self._pending: PendingRequest | None = None
        self._delivered = self._taken = 0
        self._is_paused = False

    def begin(self, pending: PendingRequest) -> None:
        """Note the request; called before it is posted."""
        self._pending = pending

    def delivered(self) -> None:
        """Count a response that is not the last one; called on the event loop."""
        self._delivered += 1
        if self._delivered - self._taken >= MAX_UNREAD and not self._is_paused and self._pending is not None:
            self._is_paused = True
            self._control.pause(self._pending)

    def taken(self) -> None:
        """Count a response that was read."""
        self._taken += 1
        if self._is_paused and self._delivered - self._taken <= MAX_UNREAD // 2 and self._pending is not None:
            self._is_paused = False
            self._control.resume(self._pending)

    def cancel(self) -> None:
        """Give the request up."""
        if self._pending is not None:
            self._control.cancel(self._pending)


class Responses(Iterator[LocalResponse]):
    """The responses to one request, in a thread that waits for them; ``naiad.api.ResponseIterator``.

    A request that nobody reads on, because the iterator was closed or is gone, is cancelled.
    """

    def __init__(self, model: NamedModel, request_id: str | None, raise_on_error: bool, control: FlowControl) -> None:
        self._model = model
        self._request_id = request_id
        self._raise_on_error = raise_on_error
        self._queue: SimpleQueue[Delivery] = SimpleQueue()
        self.flow = ResponseFlow(control)
        self._complete = False

    def receiver(self) -> Callable[[Mapping[str, Array] | None, NaiadError | None, bool], None]:
        """What takes the responses on the event loop. It does not keep the iterator."""
        put, flow = self._queue.put, self.flow

        def deliver(outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
            put((outputs, error, final))
            if not final:
                flow.delivered()

        return deliver

    def __next__(self) -> LocalResponse:
        """Wait for the next response.

        Raises:
            NaiadError: the request failed, and was made with ``raise_on_error``.
        """
        if self._complete:
            raise StopIteration
        found = self._queue.get()
        if found[2]:
            self._complete = True
        else:
            self.flow.taken()
        return response_of(self._model, self._request_id, found, self._raise_on_error)

    def cancel(self) -> None:
        """Give the request up. Its last response is an error, unless it was made already."""
        if not self._complete:
            self.flow.cancel()

    def __del__(self) -> None:
        # The last reference is gone: nobody can read what still comes.
        if not self._complete:
            self.flow.cancel()


class AsyncResponses(AsyncIterator[LocalResponse]):
    """The responses to one request, in a coroutine; ``naiad.api.AsyncResponseIterator``.

    Made within a running event loop, and read there.
    """

    def __init__(self, model: NamedModel, request_id: str | None, raise_on_error: bool, control: FlowControl) -> None:
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidArgumentError("async_infer needs a running event loop: use infer() outside of one") from None
        self._model = model
        self._request_id = request_id
        self._raise_on_error = raise_on_error
        self._mailbox = _Mailbox()
        self.flow = ResponseFlow(control)
        self._complete = False

    def receiver(self) -> Callable[[Mapping[str, Array] | None, NaiadError | None, bool], None]:
        """What takes the responses on the server's event loop. It does not keep the iterator."""
        loop, mailbox, flow = self._loop, self._mailbox, self.flow

        def deliver(outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
            mailbox.deliveries.append((outputs, error, final))
            # One wake-up is enough for all that is delivered until the reader's loop runs.
            if not mailbox.is_woken:
                mailbox.is_woken = True
                try:
                    loop.call_soon_threadsafe(mailbox.wake)
                except RuntimeError:
                    # The reader's loop is closed: nobody reads this.
                    flow.cancel()
                    return
            if not final:
                flow.delivered()

        return deliver

    async def __anext__(self) -> LocalResponse:
        """Wait for the next response.

        Raises:
            NaiadError: the request failed, and was made with ``raise_on_error``.
        """
        if self._complete:
            raise StopAsyncIteration
        mailbox = self._mailbox
        while not mailbox.deliveries:
            await mailbox.wait(self._loop)
        found = mailbox.deliveries.popleft()
        if found[2]:
            self._complete = True
        else:
            self.flow.taken()
        return response_of(self._model, self._request_id, found, self._raise_on_error)

    def cancel(self) -> None:
        """Give the request up. Its last response is an error, unless it was made already."""
        if not self._complete:
            self.flow.cancel()

    def __del__(self) -> None:
        if not getattr(self, "_complete", True):
            self.flow.cancel()


class _Mailbox:
    """Deliveries of the server's loop for a reader in another loop."""

    __slots__ = ("_waiter", "deliveries", "is_woken")

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self.is_woken = False
        self._waiter: asyncio.Future[None] | None = None

    def wake(self) -> None:
        # First: what is delivered from here on wakes again.
        self.is_woken = False
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiter = loop.create_future()
        await self._waiter


def response_of(model: NamedModel, request_id: str | None, found: Delivery, raise_on_error: bool) -> LocalResponse:
    """The response that was delivered; raises its error if it is to be raised."""
    outputs, error, final = found
    if error is not None:
        if raise_on_error:
            raise error
        return LocalResponse(model, request_id, {}, {}, error, None, final)
    if not outputs:
        return LocalResponse(model, request_id, {}, {}, None, None, final)
    parameters = outputs.parameters if isinstance(outputs, Outputs) else {}
    return LocalResponse(model, request_id, parameters, output_tensors(outputs), None, None, final)
