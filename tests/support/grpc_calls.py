"""A gRPC call whose caller is the test: it keeps what a service sends and gives up when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from naiad.frontends.grpc.rpc.call import Buffer, CallOwner

WAIT_S = 30.0


class RecordedCall:
    """One RPC in memory; a ``Call`` as the contract says.

    Attributes:
        messages: the answers, each as one block of bytes.
        status: code and text of the end; None before.
        paused: the service wants no further messages for now.
        given_up: the caller went away.
        congested: set it to play a caller who does not take the answers, then call ``drain``.
    """

    def __init__(self, metadata: Mapping[str, str] | None = None) -> None:
        self.owner: CallOwner | None = None
        self.on_drained: Callable[[], None] | None = None
        self.congested = False
        self.messages: list[bytes] = []
        self.status: tuple[int, str] | None = None
        self.trailing: dict[str, str] = {}
        self.paused = False
        self.given_up = False
        self._metadata = dict(metadata or {})
        self._changed = asyncio.Event()

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._metadata

    @property
    def ended(self) -> bool:
        return self.given_up or self.status is not None

    @property
    def code(self) -> int:
        """The code of its end, which must have come."""
        assert self.status is not None, "the call is not finished"
        return self.status[0]

    @property
    def text(self) -> str:
        """The text of its end, which must have come."""
        assert self.status is not None, "the call is not finished"
        return self.status[1]

    # What a service does

    def reply(self, parts: Sequence[Buffer], size: int) -> None:
        self.send(parts, size)
        self.finish()

    def send(self, parts: Sequence[Buffer], size: int) -> None:
        if self.ended:
            return
        message = b"".join(parts)
        assert len(message) == size, f"{size} bytes were announced, {len(message)} came"
        self.messages.append(message)
        self._changed.set()

    def finish(self, code: int = 0, text: str = "", fields: Sequence[tuple[str, str]] = ()) -> None:
        if self.ended:
            return
        self.trailing = dict(fields)
        self.status = (int(code), text)
        self.owner = None
        self._changed.set()

    def joined(self, batch: object) -> None:
        return

    def pause(self) -> None:
        self.paused = self.paused or not self.ended

    def resume(self) -> None:
        self.paused = self.paused and self.ended

    # What the caller does

    def give_up(self) -> None:
        """The caller cancels, once, unless the call has already ended."""
        if self.ended:
            return
        self.given_up = True
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.cancel()
        self._changed.set()

    def drain(self) -> None:
        """The caller took the answers that had piled up."""
        self.congested = False
        if self.on_drained is not None and not self.ended:
            self.on_drained()

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds after something was sent or the call ended."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def finished(self) -> tuple[int, str]:
        """Wait for the end; its code and text."""
        await self.wait(lambda: self.ended)
        assert self.status is not None, "the caller gave up"
        return self.status

    async def answers(self, kind: Any, count: int) -> list[Any]:
        """Wait until there are ``count`` answers; all that there are, read as messages of the class ``kind``."""
        await self.wait(lambda: len(self.messages) >= count or self.ended)
        return [kind.FromString(message) for message in self.messages]

    async def answer(self, kind: Any) -> Any:
        """Wait for the end, which must be OK with exactly one answer; that answer as a message of ``kind``."""
        assert await self.finished() == (0, "")
        (message,) = self.messages
        return kind.FromString(message)
