"""A language model's server with the API of OpenAI and known delays: a program of its own, so it keeps its times.

It checks requests as the published API describes them, and answers whole or as server-sent events. Run as
``python text_peer.py NAME=VALUE ...``; the first line that it prints is its port.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATHS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt"}
KEY = "Bearer secret"


class Behaviour:
    """What the server does, from NAME=VALUE words.

    Attributes:
        words: of each answer.
        first_ms, between_ms: before the first word of an answer, and before each of the others.
        usage: whether the last event, or the whole response, counts the tokens: two for each word.
        fault: silent_end (a stream that ends without a mark), break (the connection breaks after a word), error (an
            event with an error after a word), garbage (an event that is no JSON), overload (429).
        end_after: the process ends when so many requests have come.
        key: whether requests need ``KEY``.
        pieces: an event is sent in two writes.
        history: a chat has to have all replies of this server in their places, between the messages of the user.
    """

    def __init__(self, given: list[str]) -> None:
        found = dict(word.partition("=")[::2] for word in given)
        self.words = int(found.get("words", 3))
        self.first_s = float(found.get("first_ms", 0)) / 1e3
        self.between_s = float(found.get("between_ms", 0)) / 1e3
        self.usage = "usage" in found
        self.fault = found.get("fault", "")
        self.end_after = int(found.get("end_after", 0))
        self.requests = 0
        self.key = "key" in found
        self.pieces = "pieces" in found
        self.history = "history" in found

    @property
    def text(self) -> str:
        """The whole answer."""
        return "word " * self.words


class RefusedError(Exception):
    """The request is answered with a status and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """One connection."""

    def __init__(self, behaviour: Behaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.behaviour = behaviour
        self.reader = reader
        self.writer = writer

    async def run(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
                line, *lines = head.split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (text.partition(":") for text in lines)}
                body = await self.reader.readexactly(int(headers.get("content-length", 0)))
                try:
                    request = self.check(line, headers, body)
                except RefusedError as error:
                    refusal = {"error": {"message": str(error), "type": "invalid_request_error", "param": None}}
                    self.send(error.status, json.dumps(refusal).encode())
                    continue
                chat = "messages" in request
                await (self.stream(chat) if request.get("stream") else self.whole(chat))

    def check(self, line: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
        method, path, _ = line.split(" ")
        if method != "POST" or path not in PATHS:
            raise RefusedError(404, f"Invalid URL ({method} {path})")
        if self.behaviour.key and headers.get("authorization") != KEY:
            raise RefusedError(401, "You didn't provide an API key")
        if headers.get("content-type") != "application/json":
            raise RefusedError(415, "the content type is not application/json")
        request: dict[str, Any] = json.loads(body)
        self.behaviour.requests += 1
        if self.behaviour.end_after and self.behaviour.requests > self.behaviour.end_after:
            signal.raise_signal(signal.SIGKILL)
        for name in ("model", PATHS[path]):
            if name not in request:
                raise RefusedError(400, f"you must provide a {name} parameter")
        if request["model"] != "words":
            raise RefusedError(404, f"The model `{request['model']}` does not exist")
        if self.behaviour.history:
            self.check_history(request["messages"])
        if self.behaviour.fault == "overload":
            raise RefusedError(429, "Rate limit reached")
        return request

    def check_history(self, messages: list[dict[str, str]]) -> None:
        said, replies = messages[0::2], messages[1::2]
        own = {"role": "assistant", "content": self.behaviour.text}
        topics = {message["content"].partition(" ")[0] for message in said}
        numbers = [message["content"].partition(" ")[2] for message in said]
        if any(reply != own for reply in replies) or len(said) != len(replies) + 1 or len(topics) != 1:
            raise RefusedError(400, f"the replies are not in their places: {messages}")
        if numbers != [str(number) for number in range(len(said))]:
            raise RefusedError(400, f"a turn is missing: {messages}")

    async def whole(self, chat: bool) -> None:
        behaviour = self.behaviour
        await asyncio.sleep(behaviour.first_s + behaviour.between_s * (behaviour.words - 1))
        text = behaviour.text
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        answer: dict[str, Any] = {"id": "1", "choices": [{"index": 0, "finish_reason": "stop", **choice}]}
        if behaviour.usage:
            answer["usage"] = self.usage()
        self.send(200, json.dumps(answer).encode())

    def usage(self) -> dict[str, int]:
        tokens = 2 * self.behaviour.words
        return {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}

    async def stream(self, chat: bool) -> None:
        behaviour = self.behaviour
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.writer.write(head.encode())
        if chat:
            await self.event(_choice({"delta": {"role": "assistant", "content": ""}}))
        for number in range(behaviour.words):
            await asyncio.sleep(behaviour.between_s if number else behaviour.first_s)
            await self.event(_choice({"delta": {"content": "word "}} if chat else {"text": "word "}))
            if number == 0 and await self.fails():
                return
        if behaviour.fault != "silent_end":
            await self.event(
                _choice({"delta": {}, "finish_reason": "stop"} if chat else {"text": "", "finish_reason": "stop"})
            )
            if behaviour.usage:
                await self.event({"choices": [], "usage": self.usage()})
            await self.data(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")

    async def fails(self) -> bool:
        """Whether the stream is over after its first word."""
        fault = self.behaviour.fault
        if fault == "break":
            self.writer.transport.abort()
            return True
        if fault == "error":
            await self.event({"error": {"message": "the model is out of memory", "type": "server_error"}})
        elif fault == "garbage":
            await self.data(b"data: {oops\n\n")
        return False

    async def event(self, value: dict[str, Any]) -> None:
        await self.data(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def data(self, text: bytes) -> None:
        parts = (text[:9], text[9:]) if self.behaviour.pieces else (text,)
        for part in parts:
            self.writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await self.writer.drain()
            if len(parts) > 1:
                await asyncio.sleep(0)

    def send(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)


def _choice(more: dict[str, Any]) -> dict[str, Any]:
    return {"id": "1", "object": "chunk", "choices": [{"index": 0, "finish_reason": None, **more}]}


async def serve(behaviour: Behaviour) -> None:
    """Serve until standard input ends."""
    server = await asyncio.start_server(lambda r, w: Connection(behaviour, r, w).run(), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def text_peer(*flags: str, **behaviour: object) -> Iterator[str]:
    """A running peer: its ``host:port``."""
    words = [*flags, *(f"{name}={value}" for name, value in behaviour.items())]
    # Imported here: as a program this file stands alone.
    from support.peer_process import running

    with running(Path(__file__), words) as address:
        yield address


if __name__ == "__main__":
    asyncio.run(serve(Behaviour(sys.argv[1:])))
