"""``RpcCall``: one RPC as a service sees it, and the declaration of methods. Independent of the transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from naiad.errors import NaiadError, caller_text
from naiad.frontends.inference.refusals import id_field, id_of
from naiad.request import BatchTimes
from naiad.wire.grpc.responses import Fields
from naiad.worker.ipc.arena import Arena

Body = bytes | bytearray | memoryview
"""A request message. Its recipient may keep it."""

Buffer = Any
"""Flat bytes of a response: ``bytes``, a flat memoryview, or a row-major array. Must not change until written."""


class CallOwner(Protocol):
    """The party that works on a call."""

    def cancel(self) -> None:
        """The caller gave up, the deadline passed, the connection is gone, or the transport ended the call because of
        what the caller sent: nobody waits for a response any more.

        Called at most once, and never after the call was finished.
        """


class Receiver(CallOwner, Protocol):
    """The party that works on a call with a stream of request messages."""

    def receive(self, message: Body) -> None:
        """The next request message."""

    def end(self) -> None:
        """The caller sends no more; the call goes on until it is finished."""

    def stop(self) -> None:
        """The server stops: finish with UNAVAILABLE and the text ``STOPPING``, after the responses to what came."""


class RpcCall(Protocol):
    """One RPC. All of it belongs to the event loop's thread. After the call has ended all methods do nothing.

    Attributes:
        owner: cancelled when the caller gives up; set by the service, dropped when the call is finished.
        ended: the call was finished or given up.
        congested: responses pile up because the caller does not take them.
        on_drained: called when they no longer do, and whenever all responses have been written.
    """

    owner: CallOwner | None
    on_drained: Callable[[], None] | None

    @property
    def metadata(self) -> Mapping[str, str]:
        """The caller's metadata, names in lower case; repeated ones joined by commas."""

    @property
    def ended(self) -> bool: ...

    @property
    def congested(self) -> bool: ...

    def reply(self, parts: Sequence[Buffer], size: int) -> None:
        """Send the only message, ``size`` bytes in ``parts``, and finish with status OK: the path of most calls."""

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        """Send one message of a stream of responses, ``size`` bytes in ``parts``."""

    def finish(self, code: int = 0, text: str = "", fields: Fields = ()) -> None:
        """End the call with a status, and with ``fields`` as trailing metadata."""

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch that its request runs in, where its response has the times (``server-timing``)."""

    def pause(self) -> None:
        """Take no further request messages for now; a message that was already received may still come."""

    def resume(self) -> None:
        """Take request messages again."""


@dataclass(frozen=True, slots=True)
class Unary:
    """A method with one request message. ``handle`` responds with ``reply``, or ``send`` and ``finish``, now or later.

    ``compressed``: its responses are compressed when the server compresses. ``check_room`` gets the size of a large
    message before it is received, and raises the error that the call is refused with. ``find_arena`` gets the beginning
    of a message, and returns the memory into which it is to be received; None for any memory.
    """

    handle: Callable[[RpcCall, Body], None]
    compressed: bool = False
    check_room: Callable[[int], None] | None = None
    find_arena: Callable[[memoryview], Arena | None] | None = None


@dataclass(frozen=True, slots=True)
class Streaming:
    """A method with a stream of request messages; ``open`` is called before the first of them.

    ``compressed`` and ``find_arena`` are as for ``Unary``.
    """

    open: Callable[[RpcCall], Receiver]
    compressed: bool = False
    find_arena: Callable[[memoryview], Arena | None] | None = None


Method = Unary | Streaming
Methods = Mapping[str, Method]
"""Methods by path, such as ``/grpc.health.v1.Health/Check``."""


def reply_message(call: RpcCall, message: Any) -> None:
    """Answer with one protobuf message."""
    raw = message.SerializeToString()
    call.reply((raw,), len(raw))


def send_message(call: RpcCall, message: Any) -> None:
    """Send one protobuf message of a stream of responses."""
    raw = message.SerializeToString()
    call.send((raw,), len(raw))


def fail(call: RpcCall, error: NaiadError, request_id: str = "") -> None:
    """End a call with an error's code and text.

    ``request_id``: of the request that failed, for the trailing metadata; by default that of the owner of the call.
    """
    request_id = request_id or id_of(call.owner)
    call.finish(error.grpc_code, caller_text(error), (id_field(request_id),) if request_id else ())
