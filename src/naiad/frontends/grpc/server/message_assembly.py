"""The request messages of one call that do not come as one message in one piece: they are assembled, held back while
the call takes none, decompressed, and counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from naiad.errors import NaiadError
from naiad.frontends.grpc.server.state import PartialCall
from naiad.frontends.inference.offload import OFF_LOOP_BYTES
from naiad.wire.grpc.compression import IDENTITY, MessageTooLargeError, decompress
from naiad.wire.grpc.messages import MessageReader
from naiad.wire.grpc.status import STOPPING, Status
from naiad.wire.http2.stream import BUSY, PAUSED

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.frontends.grpc.rpc.call import Body
    from naiad.frontends.grpc.server.state import GrpcService
    from naiad.worker.ipc.arena import Arena
    from naiad.worker.ipc.buffer_pool import BufferPool

_HOLDS: Final = PAUSED | BUSY
# Used bytes are cut off in large steps: each cut copies the rest.
_COMPACT_BYTES: Final = 1 << 20
_ANY_BYTES: Final = 1 << 31


class AssembledCall(PartialCall, Protocol):
    """A call that takes the messages.

    Attributes:
        flags: as in ``Stream``.
    """

    flags: int

    @property
    def ended(self) -> bool:
        """Whether the call was finished or given up."""

    @property
    def peer(self) -> OffLoopRunner:
        """The connection of the call."""

    def deliver(self, message: Body) -> None:
        """Take a whole message."""

    def refuse(self, error: NaiadError | MemoryError) -> None:
        """Refuse the request message, and with it the call."""

    def give_up(self, code: int, text: str) -> None:
        """End the call with a status, and cancel its owner."""

    def continue_reading(self) -> None:
        """Read the data that were kept while the call was paused or busy."""


class OffLoopRunner(Protocol):
    """A connection that has a thread for its calls."""

    def run_in_thread(self, work: Callable[[Any], Any], argument: Any, then: Callable[[Any], object]) -> None:
        """Do ``work``, which must not raise, off the loop, and pass its outcome to ``then`` on the loop."""


class MessageAssembly:
    """Assembles the messages of ``call``, which gets each by ``deliver``.

    ``check_room`` and ``find_arena`` are those of its method; None for none.
    """

    __slots__ = (
        "_busy_bytes", "_call", "_encoding", "_find_arena", "_held_bytes", "_reader", "_service", "_unread",
        "_unread_at",
    )  # fmt: skip

    def __init__(
        self,
        call: AssembledCall,
        service: GrpcService,
        encoding: str,
        check_room: Callable[[int], None] | None = None,
        find_arena: Callable[[memoryview], Arena | None] | None = None,
    ) -> None:
        self._call = call
        self._service = service
        self._encoding = encoding
        self._find_arena = find_arena
        self._reader = MessageReader(self._pool_for, service.limits.max_message_bytes, check_room)
        # The data that came while the call took no messages, of which those before ``_unread_at`` are used.
        self._unread = bytearray()
        self._unread_at = 0
        self._busy_bytes = 0
        self._held_bytes = 0

    @property
    def is_held_back(self) -> bool:
        """Whether data are kept that the call has not got yet, or the call takes none."""
        return bool(self._unread or self._call.flags & _HOLDS)

    @property
    def is_within_message(self) -> bool:
        """A message has begun and is not whole."""
        return self._reader.is_within_message

    def _pool_for(self, size: int, beginning: memoryview) -> BufferPool:
        """The pool for a message of ``size`` bytes that begins like this."""
        find, pools = self._find_arena, self._service.pools
        # A compressed message does not show its model, and its tensors lie elsewhere in the end.
        if find is None or self._reader.compressed:
            return pools.own
        return pools.choose(size, partial(find, beginning))

    # Taking data in

    def append(self, buffer: bytearray, start: int, end: int) -> bool:
        """The fast path for the middle of a long message; False where it does not apply."""
        if self._unread or self._call.flags & _HOLDS or not self._reader.append(buffer, start, end):
            return False
        self._held_bytes += end - start
        self._service.partial_bytes += end - start
        if self._service.partial_bytes > self._service.limits.max_partial_bytes:
            self._refuse_for_all()
        return True

    def take(self, view: memoryview) -> None:
        """Read the next data of the request, or keep them."""
        # Data behind kept ones are kept too: messages must not change places.
        used = 0 if self.is_held_back else self._read(view)
        if used < len(view):
            self._unread += view[used:]
        self._account()

    def read_on(self) -> None:
        """Read the kept data, now that the call takes messages again."""
        with memoryview(self._unread) as view, view[self._unread_at :] as rest:
            self._unread_at += self._read(rest)
        if self._unread_at == len(self._unread):
            self._unread = bytearray()
            self._unread_at = 0
        elif self._unread_at > _COMPACT_BYTES:
            self._unread = self._unread[self._unread_at :]
            self._unread_at = 0
        self._account()

    def _read(self, view: memoryview) -> int:
        """Deliver the messages in ``view`` until there is a reason to stop; returns the bytes used."""
        call, reader = self._call, self._reader
        position = 0
        while position < len(view) and not call.flags & _HOLDS and not call.ended:
            try:
                with view[position:] as rest:
                    used, message = reader.feed(rest)
            except (NaiadError, MemoryError) as error:
                call.refuse(error)
                break
            position += used
            if message is not None:
                self._accept(message)
        # An ended call needs no rest, which counts as used.
        return len(view) if call.ended else position

    def target(self) -> memoryview | None:
        """The memory of a message to receive into; None if the next data do not all belong there."""
        return None if self.is_held_back else self._reader.target()

    def advance(self, size: int) -> None:
        """``size`` bytes were received into ``target``."""
        try:
            message = self._reader.advance(size)
        except (NaiadError, MemoryError) as error:
            self._account()
            self._call.refuse(error)
            return
        self._account()
        if message is not None:
            self._accept(message)
            self._account()

    # Compressed messages

    def _accept(self, message: Body) -> None:
        """Deliver a whole message, decompressed."""
        call = self._call
        # The next message may have begun in the same data: its time starts now.
        self._service.partial_calls.pop(call, None)
        if not self._reader.compressed:
            call.deliver(message)
        elif self._encoding == IDENTITY:
            call.give_up(Status.INTERNAL, "a request message is marked as compressed, but no grpc-encoding was given")
        elif (outcome := self._decompress_small(message)) is not None:
            self._decompressed(outcome)
        else:
            # While a thread decompresses, the window stays closed: little more than one message is held.
            call.flags |= BUSY
            self._busy_bytes = len(message)
            call.peer.run_in_thread(self._decompress, message, self._decompressed)

    def _decompress_small(self, message: Body) -> Body | NaiadError | MemoryError | None:
        """The outcome for a message that is small before and after; None otherwise: a few bytes can become many."""
        if len(message) > OFF_LOOP_BYTES:
            return None
        outcome = self._decompress(message, OFF_LOOP_BYTES)
        return None if isinstance(outcome, MessageTooLargeError) else outcome

    def _decompress(self, message: Body, limit: int = _ANY_BYTES) -> Body | NaiadError | MemoryError:
        """Runs in a thread for large messages, and touches nothing of the call."""
        try:
            return decompress(message, self._encoding, min(limit, self._service.limits.max_message_bytes))
        except (NaiadError, MemoryError) as error:
            # Returned, since ``run_in_thread`` takes no work that raises.
            return error

    def _decompressed(self, outcome: Any) -> None:
        call = self._call
        was_busy = call.flags & BUSY
        self._busy_bytes = 0
        call.flags &= ~BUSY
        if call.ended:
            return
        if isinstance(outcome, NaiadError | MemoryError):
            call.refuse(outcome)
            return
        call.deliver(outcome)
        # Small messages are decompressed within ``_read``, which continues by itself.
        if was_busy:
            call.continue_reading()

    # Accounting

    def _account(self) -> None:
        """Count the bytes of messages that were not delivered."""
        call, service = self._call, self._service
        if call.ended:
            # ``H2Call.reply`` ends a call on its fast path without calling ``forget``.
            self.forget()
            return
        held = self._reader.waiting_bytes + len(self._unread) - self._unread_at + self._busy_bytes
        service.partial_bytes += held - self._held_bytes
        self._held_bytes = held
        if held or self._reader.is_within_message:
            # setdefault: further data of the same message must not restart its time.
            service.partial_calls.setdefault(call, 0)
            if service.partial_bytes > service.limits.max_partial_bytes:
                self._refuse_for_all()
        else:
            service.partial_calls.pop(call, None)

    def _refuse_for_all(self) -> None:
        self._call.give_up(
            Status.RESOURCE_EXHAUSTED,
            f"the request messages that are arriving hold more than {self._service.limits.max_partial_bytes} bytes "
            "together; try again later, or raise --max-in-flight-bytes",
        )

    def watch_next(self) -> None:
        """Watch the time of the next message as if it had begun."""
        self._service.partial_calls.setdefault(self._call, 0)

    def check_rate(self, waited_s: int) -> bool:
        """Whether a message that began ``waited_s`` seconds ago still arrives; ends the call if it comes too slowly.

        A message that waits for the call itself does not count.
        """
        limits = self._service.limits
        if self.is_held_back:
            return False
        if self._service.draining and waited_s >= limits.drain_linger_s:
            # A caller that has stopped sending must not delay the end of the server.
            self._call.give_up(Status.UNAVAILABLE, STOPPING)
        elif waited_s >= limits.message_grace_s + self._held_bytes // limits.min_message_bytes_per_s:
            self._call.give_up(
                Status.CANCELLED,
                f"the request message came too slowly: {self._held_bytes} bytes in {waited_s} s",
            )
        return True

    def forget(self) -> None:
        """The call has ended: drop the held data."""
        self._service.partial_bytes -= self._held_bytes
        self._held_bytes = 0
        self._service.partial_calls.pop(self._call, None)
        self._unread = bytearray()
        self._unread_at = 0
