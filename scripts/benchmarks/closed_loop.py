"""Calls that differ from one another, sent in a closed loop by `naiad perf`'s generator and judged one by one."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from naiad.perf.prepared import send_requests
from naiad.perf.target.prepared_http import PreparedRequest, PreparedResponse
from naiad.perf.target.protocol import Problem, TargetError

from .figures import CaseError
from .tally import Tally

HEADER_LENGTH = re.compile(rb"\r\ninference-header-content-length:\s*(\d+)", re.IGNORECASE)
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
        CaseError: nobody listens, the server ends all connections, or calls were still unanswered after
            ``limit_seconds``.
    """
    tally, unjudged = Tally(), Counter[str]()
    requests = (_request(call, tally, unjudged) for call in calls)
    try:
        found = send_requests(f"127.0.0.1:{port}", requests, connections, limit_seconds)
    except TargetError as error:
        raise CaseError(f"{error}; without an answer: {dict(+unjudged)}") from None
    tally.latencies = found.latency
    causes = [cause for (kind, cause) in found.errors if kind != WRONG]
    for kind, number in (+unjudged).items():
        tally.wrong[kind] += number
        tally.problems.setdefault(kind, f"no answer: {'; '.join(causes)}")
    return tally


WRONG = "wrong answer"


def _request(call: Call, tally: Tally, unjudged: Counter[str]) -> PreparedRequest:
    unjudged[call.kind] += 1

    def judge(response: PreparedResponse) -> Problem | None:
        unjudged[call.kind] -= 1
        problem = _judged(call, response)
        tally.count(call.kind, problem)
        return (WRONG, problem) if problem else None

    return PreparedRequest(call.wire, judge, closes=call.close)


def _judged(call: Call, response: PreparedResponse) -> str:
    mark = HEADER_LENGTH.search(response.head)
    answer = Answer(response.status, int(mark[1]) if mark else len(response.body), response.body)
    try:
        return call.judge(answer)
    except (CaseError, LookupError, TypeError, ValueError) as error:
        return f"unreadable answer ({error!r}): {shown(answer.body)}"


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
