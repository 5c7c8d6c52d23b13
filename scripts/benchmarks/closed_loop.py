"""Callers in a closed loop on raw sockets: each sends its next request when it has the answer to the last one.

Used where requests differ from one another, and in place of wrk where that is missing; run as a module it repeats one
request and prints the result as the wrk script does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .crew import Crew, Tally, run_crew
from .figures import CaseError

LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
HEADER_LENGTH = re.compile(rb"\r\ninference-header-content-length:\s*(\d+)", re.IGNORECASE)
CLOSES = re.compile(rb"\r\nconnection:\s*close", re.IGNORECASE)
SHOWN_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer; ``header_length`` is where binary tensors begin, the whole body's length when there are none."""

    status: int
    header_length: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One request and what is wrong with its answer: ``judge`` gives "" for a right one.

    ``close`` says that the request asks for the connection to be closed behind it.
    """

    kind: str
    wire: bytes
    judge: Callable[[Answer], str]
    close: bool = False


def expect_status(*statuses: int) -> Callable[[Answer], str]:
    """A judge that asks for one of ``statuses`` and nothing else."""

    def judge(answer: Answer) -> str:
        if answer.status in statuses:
            return ""
        return f"answered {answer.status}, expected {' or '.join(map(str, statuses))}: {shown(answer.body)}"

    return judge


def shown(body: bytes) -> str:
    """The beginning of a body in characters that a terminal can show."""
    text = body[:SHOWN_CHARACTERS].decode("ascii", errors="replace")
    return "".join(character if character.isascii() and character.isprintable() else "." for character in text)


def run_calls(port: int, calls: Iterator[Call], connections: int, limit_seconds: float) -> Tally:
    """Send every call over ``connections`` connections and return what came of them.

    Raises:
        CaseError: calls were still unanswered after ``limit_seconds``.
    """
    return run_crew(port, calls, _Caller, connections, limit_seconds)


class _Caller(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.call: Call | None = None
        self.received = bytearray()
        self.sent = 0.0
        self.finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.crew.callers.add(self)
        self.send_next()

    def send_next(self) -> None:
        self.call = call = next(self.crew.calls, None)
        if call is None:
            self.finished = True
            self.transport.close()
            return
        self.sent = time.perf_counter()
        self.transport.write(call.wire)

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0 or self.call is None:
            return
        head = bytes(self.received[: end + 2])
        length = LENGTH.search(head)
        if length is None:
            self.take(self.call, Answer(int(head[9:12]), 0, head), closes=True)
            return
        body_end = end + 4 + int(length[1])
        if len(self.received) < body_end:
            return
        body = bytes(self.received[end + 4 : body_end])
        mark = HEADER_LENGTH.search(head)
        answer = Answer(int(head[9:12]), int(mark[1]) if mark else len(body), body)
        del self.received[:body_end]
        self.take(self.call, answer, closes=self.call.close or CLOSES.search(head) is not None)

    def take(self, call: Call, answer: Answer, *, closes: bool) -> None:
        self.crew.tally.latencies.append(time.perf_counter() - self.sent)
        self.crew.tally.count(call.kind, self.judged(call, answer))
        self.call = None
        if closes:
            self.transport.close()
        else:
            self.send_next()

    def judged(self, call: Call, answer: Answer) -> str:
        try:
            return call.judge(answer)
        except (CaseError, LookupError, TypeError, ValueError) as error:
            return f"unreadable answer ({error!r}): {shown(answer.body)}"

    def connection_lost(self, exc: Exception | None) -> None:
        self.crew.callers.discard(self)
        if self.call is not None:
            problem = f"connection lost without an answer ({exc or 'closed by the server'})"
            self.crew.tally.count(self.call.kind, problem)
            self.call = None
        if not self.finished:
            self.crew.connect()
        self.crew.check_done()


def repeat(wire: bytes, seconds: float) -> Iterator[Call]:
    """The same request again and again until ``seconds`` have passed."""
    call = Call("request", wire, expect_status(200))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        yield call


def rate_of(port: int, wire: bytes, callers: int, requests: int, limit_seconds: float) -> float:
    """Answers per second of ``requests`` equal requests, from the first one sent to the last one answered.

    For slow models: a fixed time would cut the last answers off, and they are a large part of few.

    Raises:
        CaseError: an answer was not 200, or came too late.
    """
    calls = repeat_times(wire, requests)
    began = time.perf_counter()
    tally = run_calls(port, calls, callers, limit_seconds)
    elapsed = time.perf_counter() - began
    if tally.wrong:
        raise CaseError(f"with {callers} callers: {tally.summary()}")
    return requests / elapsed


def repeat_times(wire: bytes, times: int) -> Iterator[Call]:
    """The same request ``times`` times."""
    return itertools.repeat(Call("request", wire, expect_status(200)), times)


def percentile_us(latencies: array[float], share: float) -> float:
    """The latency in microseconds that ``share`` (0 to 1) of the sorted ``latencies`` do not exceed."""
    return latencies[min(len(latencies) - 1, int(share * len(latencies)))] * 1e6


def main() -> None:
    """Repeat one request and print one JSON line: PORT CONNECTIONS SECONDS FILE."""
    port, connections, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    began = time.perf_counter()
    tally = run_calls(port, repeat(Path(sys.argv[4]).read_bytes(), seconds), connections, seconds + 30)
    elapsed = time.perf_counter() - began
    latencies = array("d", sorted(tally.latencies))
    result: dict[str, object] = {
        "requests": tally.right.total(),
        "seconds": elapsed,
        "wrong": tally.wrong.total(),
        "problem": tally.summary(),
    }
    if latencies:
        result |= {f"p{p}_us": percentile_us(latencies, p / 100) for p in (50, 95, 99)}
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
