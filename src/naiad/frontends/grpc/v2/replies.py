"""Methods whose messages go through protobuf: the reading of requests, and the sending of responses or errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

from naiad.config.messages import PACKAGE, message_class
from naiad.errors import NaiadError
from naiad.frontends.grpc.rpc.call import Body, RpcCall, Unary, fail, reply_message
from naiad.wire.grpc.compression import MessageTooLargeError
from naiad.wire.grpc.status import Status

UNPARSABLE: Final = "Unable to parse request"
"""The text for a message that protobuf refuses, with INTERNAL. Source: a recorded response."""


MAX_REQUEST_BYTES: Final = 1 << 20
"""More than any of these methods needs. Protobuf copies messages, and holds the event loop up meanwhile."""


def check_size(size: int) -> None:
    """Refuse a request message of ``size`` bytes to a method that takes small ones.

    Raises:
        MessageTooLargeError: it is larger than ``MAX_REQUEST_BYTES``.
    """
    if size > MAX_REQUEST_BYTES:
        raise MessageTooLargeError(f"the request message has {size} bytes, this method takes up to {MAX_REQUEST_BYTES}")


def read_request(call: RpcCall, message_type: Any, body: Body, may_be_large: bool = False) -> Any:
    """The request message; None if it is malformed or too large, and then the call has ended."""
    try:
        if not may_be_large:
            check_size(len(body))
    except MessageTooLargeError as error:
        fail(call, error)
        return None
    try:
        return message_type.FromString(body)
    except DecodeError:
        call.finish(Status.INTERNAL, UNPARSABLE)
        return None


def protobuf_method(request: str, make_response: Callable[[Any], Any], package: str = PACKAGE) -> Unary:
    """A method that responds at once.

    Args:
        request: name of the request's message type.
        make_response: gets the request message and returns the response message; a ``NaiadError`` of it ends the call
            with that error's code and text.
        package: where ``request`` is declared.
    """
    message_type = message_class(request, package)

    def handle(call: RpcCall, body: Body) -> None:
        message = read_request(call, message_type, body)
        if message is None:
            return
        try:
            found = make_response(message)
        except NaiadError as error:
            fail(call, error)
        else:
            reply_message(call, found)

    return Unary(handle, check_room=check_size)
