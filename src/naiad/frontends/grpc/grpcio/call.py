"""One RPC of grpcio as a ``Call``. grpcio is imported inside functions, so that a server without it needs no package.

grpcio's context is read and written by coroutines, one step at a time, but services call plain methods. So the RPC's
own task writes the messages that a service has queued, and for a stream of requests a second task reads.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import INTERNAL_FAILURE, NaiadError
from naiad.frontends.grpc.rpc.access_gate import admitted
from naiad.frontends.grpc.rpc.call import Buffer, CallOwner, Method, Methods, Receiver, Streaming, Unary
from naiad.frontends.grpc.rpc.call_log import with_call_log
from naiad.frontends.grpc.rpc.timed_call import with_timing
from naiad.request import BatchTimes
from naiad.telemetry.metrics.server_statistics import CancelCounts
from naiad.wire.grpc.responses import Fields
from naiad.wire.grpc.status import NO_MESSAGE, STOPPING, Status, shorten_text

if TYPE_CHECKING:
    from naiad.frontends.access.gate import Gate

log = logging.getLogger(__name__)

CONGESTED_BYTES: Final = 1 << 18
DRAINED_BYTES: Final = 1 << 16
# The caller's own deadline may be earlier by this time, because it is rounded up on its way.
_ROUNDED_S: Final = 0.02


class GrpcioCall:
    """The ``Call`` of one RPC, see there; ``run`` is awaited by the RPC's task and returns when the call has ended."""

    __slots__ = (
        "_arrived",
        "_cancelled",
        "_context",
        "_queue",
        "_queued_bytes",
        "_reading",
        "_receiver",
        "_status",
        "congested",
        "ended",
        "on_drained",
        "owner",
    )

    def __init__(self, context: Any, cancelled: CancelCounts) -> None:
        self._cancelled = cancelled
        self.owner: CallOwner | None = None
        self.on_drained: Callable[[], None] | None = None
        self.ended = False
        self.congested = False
        self._context = context
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._status: tuple[int, str] | None = None
        self._receiver: Receiver | None = None
        self._arrived = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()

    # Called by services

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's metadata; binary values in base64, as they travel."""
        found: dict[str, str] = {}
        for name, value in self._context.invocation_metadata():
            text = b64encode(value).decode().rstrip("=") if isinstance(value, bytes) else str(value)
            found[name] = f"{found[name]},{text}" if name in found else text
        return found

    def reply(self, parts: Sequence[Buffer], size: int) -> None:
        """Send the only message and finish."""
        self.send(parts, size)
        self.finish()

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send one message."""
        if not self.ended:
            # grpcio takes bytes only.
            message = b"".join(parts)
            self._queue.append(message)
            self._queued_bytes += len(message)
            self.congested = self.congested or self._queued_bytes > CONGESTED_BYTES
            self._arrived.set()

    def finish(self, code: int = 0, text: str = "", fields: Fields = ()) -> None:
        """End the call with a status and trailing metadata, after the messages that were sent before."""
        if not self.ended:
            self._status = (code, text)
            if fields:
                self._context.set_trailing_metadata(tuple(fields))
            self._end()

    def joined(self, batch: BatchTimes) -> None:
        """Nothing: responses without times."""

    def pause(self) -> None:
        """Read no further messages for now."""
        if not self.ended:
            self._reading.clear()

    def resume(self) -> None:
        """Read messages again."""
        self._reading.set()

    # Called by grpcio

    async def run(self, method: Method) -> None:
        """Let a method work on this call; returns or raises when grpcio may end it."""
        reader: asyncio.Task[None] | None = None
        try:
            if isinstance(method, Streaming):
                reader = asyncio.ensure_future(self._read_stream(method))
            else:
                await self._read_one(method)
            await self._write(method.compressed)
        finally:
            # grpcio cancels this task when the caller is gone; after a finished call it does nothing.
            self._give_up()
            if reader is not None:
                await self._end_reading(reader)

    def stop(self) -> None:
        """The server stops: a call with a stream of requests is to end by itself."""
        if self._receiver is not None and not self.ended:
            self._guarded(self._receiver.stop)

    async def refuse(self, code: int, text: str) -> None:
        """End the call without a method."""
        self.finish(code, text)
        await self._write(False)

    async def _read_one(self, method: Unary) -> None:
        from grpc.aio import EOF, BaseError

        try:
            message = await self._context.read()
        except BaseError:
            # The caller vanished before it sent its message.
            self._give_up()
            return
        if message is EOF:
            self.finish(Status.INTERNAL, NO_MESSAGE)
        else:
            self._guarded(method.handle, self, message)

    async def _read_stream(self, method: Streaming) -> None:
        from grpc.aio import EOF, BaseError

        receiver = self._receiver = self._guarded(method.open, self)
        if not self.ended:
            self.owner = receiver
        while receiver is not None:
            try:
                message = await self._context.read()
            except BaseError:
                # The call has ended meanwhile, by its own status or because the server stopped.
                return
            if self.ended:
                return
            if message is EOF:
                self._guarded(receiver.end)
                return
            self._guarded(receiver.receive, message)
            # Waits while the call is paused: one message is read ahead at most.
            await self._reading.wait()

    def _guarded(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """The boundary: a fault of a service ends its own call only."""
        try:
            return work(*arguments)
        except Exception:
            log.exception("a gRPC call failed unexpectedly")
            self._notify_owner()
            self.finish(Status.INTERNAL, INTERNAL_FAILURE)
            return None

    async def _write(self, compressed: bool) -> None:
        """Write the messages of the service until the call has ended, or its caller is gone."""
        from grpc.aio import InternalError

        try:
            await self._write_all(compressed)
        except InternalError:
            # The caller vanished during the write.
            self._give_up()

    async def _write_all(self, compressed: bool) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                if not compressed:
                    self._context.disable_next_message_compression()
                await self._context.write(message)
                self._written(len(message))
            if self.ended:
                break
            # No await lies between the empty queue and this, so no message is missed.
            self._arrived.clear()
            await self._arrived.wait()
        code, text = self._status or (0, "")
        if code:
            # abort ends the task with an exception, so it comes last. Status OK needs no call: returning sends it.
            await self._context.abort(_status_code(code), shorten_text(text))

    def _written(self, size: int) -> None:
        self._queued_bytes -= size
        was_congested = self.congested
        if was_congested and self._queued_bytes <= DRAINED_BYTES:
            self.congested = False
        is_drained = not self._queued_bytes or (was_congested and not self.congested)
        if is_drained and self.on_drained is not None and not self.ended:
            self._guarded(self.on_drained)

    def _give_up(self) -> None:
        """The caller is gone, unless the call was finished before."""
        if not self.ended:
            self._notify_owner()
            # Nobody reads them; the queue may hold large messages.
            self._queue.clear()
            self._end()

    def _notify_owner(self) -> None:
        owner, self.owner = self.owner, None
        if owner is not None:
            # grpcio does not distinguish a caller that cancels from one that disconnects.
            left_s = self._context.time_remaining()
            if left_s is not None and left_s <= _ROUNDED_S:
                self._cancelled.deadline += 1
            else:
                self._cancelled.client_cancel += 1
            try:
                owner.cancel()
            except Exception:
                log.exception("giving a gRPC call up failed")

    def _end(self) -> None:
        self.ended = True
        self.owner = None
        self._arrived.set()
        # A reader that waits while the call is paused must notice the end.
        self._reading.set()

    async def _end_reading(self, reader: asyncio.Task[None]) -> None:
        """Wait until no read is pending: grpcio must not be asked for a message once its call is gone.

        A read ends by itself when the caller is gone or has received an error. Only before status OK it must be
        cancelled, which could leak a message that arrives just then.
        """
        if self._status is not None and self._status[0] == 0:
            reader.cancel()
        await asyncio.wait({reader})


class CallsInFlight:
    """grpcio's handler of all calls: carries them to the methods of a table, by path.

    Attributes:
        refusal: if not None, the status that refuses new calls.
        idle: set while no call is in flight.
    """

    def __init__(self, methods: Methods, gate: Gate | None = None, cancelled: CancelCounts | None = None) -> None:
        self._methods = methods
        self._cancelled = CancelCounts() if cancelled is None else cancelled
        self._gate = gate
        self._calls: set[GrpcioCall] = set()
        self.refusal: tuple[int, str] | None = None
        self.idle = asyncio.Event()
        self.idle.set()

    def stop(self) -> None:
        """Refuse new calls, and ask those with a stream of requests to end."""
        self.refusal = (Status.UNAVAILABLE, STOPPING)
        for call in list(self._calls):
            call.stop()

    def service(self, details: Any) -> Any:
        """The handler of a call for grpcio. Every call is a stream of raw bytes to it: services parse them."""
        import grpc

        return grpc.stream_stream_rpc_method_handler(self._handler(details.method))

    def _handler(self, path: str) -> Callable[[Any, Any], Any]:
        async def handle(requests: Any, context: Any) -> None:
            call = GrpcioCall(context, self._cancelled)
            if self.refusal is not None:
                await call.refuse(*self.refusal)
                return
            try:
                method = self._method(path, call)
            except NaiadError as error:
                await call.refuse(error.grpc_code, str(error))
                return
            if method is None:
                await call.refuse(Status.UNIMPLEMENTED, "")
            else:
                await self._carry(call, method)

        return handle

    def _method(self, path: str, call: GrpcioCall) -> Method | None:
        method = self._methods.get(path)
        found = method if self._gate is None else admitted(method, path, call.metadata, self._gate)
        return with_call_log(with_timing(found, call.metadata), path)

    async def _carry(self, call: GrpcioCall, method: Method) -> None:
        self._calls.add(call)
        self.idle.clear()
        try:
            await call.run(method)
        finally:
            self._calls.remove(call)
            if not self._calls:
                self.idle.set()


@cache
def _status_code(code: int) -> Any:
    import grpc

    return next((known for known in grpc.StatusCode if known.value[0] == code), grpc.StatusCode.UNKNOWN)
