"""A small application behind gRPC, and the owners of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from naiad.frontends.grpc.rpc.call import Body, Methods, Receiver, RpcCall, Streaming, Unary
from naiad.wire.grpc.status import STOPPING, Status
from support.h2_frames import numbered


class Counted:
    """An owner that counts how often it was told to give up; raises then, if asked to."""

    def __init__(self, raises: bool = False) -> None:
        self.cancelled = 0
        self.raises = raises

    def cancel(self) -> None:
        self.cancelled += 1
        if self.raises:
            raise RuntimeError("boom in cancel")


class Conversation(Counted):
    """The service's side of a streaming call: keeps what comes; ``on_message`` reacts."""

    def __init__(self, call: RpcCall, on_message: Callable[[Conversation, bytes], None] | None = None) -> None:
        super().__init__()
        self.call = call
        self.messages: list[bytes] = []
        self.ended = False
        self.on_message = on_message

    def receive(self, message: Body) -> None:
        assert not self.ended and not self.cancelled
        self.messages.append(bytes(message))
        if self.on_message is not None:
            self.on_message(self, self.messages[-1])

    def end(self) -> None:
        assert not self.ended
        self.ended = True

    def stop(self) -> None:
        self.call.finish(Status.UNAVAILABLE, STOPPING)


@dataclass
class Waiting:
    """A unary call that is not answered yet."""

    call: RpcCall
    body: bytes
    owner: Counted


class Application:
    """Methods to call, and what came in.

    ``/Echo`` answers with the message, ``/Big`` with as many bytes as the message's number says, ``/Later`` keeps the
    call in ``waiting``, ``/Fail`` raises. ``/Talk`` streams every message back and finishes when the caller ends,
    ``/Listen`` only keeps what comes in ``conversations``, ``/FailOpen`` and ``/FailReceive`` raise.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.waiting: list[Waiting] = []
        self.conversations: list[Conversation] = []
        self.on_message: Callable[[Conversation, bytes], None] | None = None

    def methods(self) -> Methods:
        return {
            "/Echo": Unary(self.echo),
            "/Packed": Unary(self.echo, compressed=True),
            "/Big": Unary(self.big),
            "/Later": Unary(self.later),
            "/Fail": Unary(self.fail),
            "/Talk": Streaming(self.talk),
            "/Listen": Streaming(self.listen),
            "/FailOpen": Streaming(self.fail_open),
            "/FailReceive": Streaming(self.fail_receive),
        }

    def echo(self, call: RpcCall, body: Body) -> None:
        self.seen.append(("/Echo", bytes(body)))
        call.reply((body,), len(body))

    def big(self, call: RpcCall, body: Body) -> None:
        size = int(bytes(body))
        call.reply((memoryview(numbered(size)),), size)

    def later(self, call: RpcCall, body: Body) -> None:
        owner = Counted()
        call.owner = owner
        self.waiting.append(Waiting(call, bytes(body), owner))

    def fail(self, call: RpcCall, body: Body) -> None:
        raise RuntimeError("boom")

    def talk(self, call: RpcCall) -> Receiver:
        talking = Talking(call)
        self.conversations.append(talking)
        return talking

    def listen(self, call: RpcCall) -> Receiver:
        listening = Conversation(call, self.on_message)
        self.conversations.append(listening)
        return listening

    def fail_open(self, call: RpcCall) -> Receiver:
        raise RuntimeError("boom")

    def fail_receive(self, call: RpcCall) -> Receiver:
        return Raising(call)


class Talking(Conversation):
    """Sends every message back and finishes after the last."""

    def receive(self, message: Body) -> None:
        super().receive(message)
        self.call.send((message,), len(message))

    def end(self) -> None:
        super().end()
        self.call.finish()


class Raising(Conversation):
    def receive(self, message: Body) -> None:
        raise RuntimeError("boom")
