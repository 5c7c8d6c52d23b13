"""Requests that a program has written itself, against a real server."""

from __future__ import annotations

from itertools import islice, repeat

import pytest

from naiad.perf.prepared import send_at_rate, send_requests
from naiad.perf.target.prepared_http import PreparedRequest, PreparedResponse
from naiad.perf.target.protocol import Problem, TargetError
from support.perf_peer import peer

LIMIT_S = 30


def wire(path: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()


def is_success(response: PreparedResponse) -> Problem | None:
    return None if response.status == 200 else ("refused", f"{response.status} {response.body.decode()}")


INFER = PreparedRequest(wire("/v2/models/known/infer"), is_success)


def test_each_request_is_judged_by_its_own_rule() -> None:
    bodies: list[bytes] = []

    def keep(response: PreparedResponse) -> Problem | None:
        bodies.append(response.body)
        return None

    kept, missing = PreparedRequest(INFER.wire, keep), PreparedRequest(wire("/nowhere"), is_success)
    with peer() as address:
        found = send_requests(address, iter([kept, missing, INFER] * 20), 4, LIMIT_S)
    assert (found.requests, found.sent, found.latency.count) == (40, 60, 40)
    assert found.errors == {("refused", '404 {"error":"not here"}'): 20}
    assert len(bodies) == 20
    assert b"OUTPUT0" in bodies[0]


def test_connections_are_closed_where_a_request_asks_for_it() -> None:
    closing = PreparedRequest(INFER.wire, is_success, closes=True)
    with peer() as address:
        found = send_requests(address, islice(repeat(closing), 30), 3, LIMIT_S)
    assert (found.requests, dict(found.errors)) == (30, {})


@pytest.mark.slow
def test_a_rate_is_kept_however_long_responses_take() -> None:
    with peer(delay_ms=100) as address:
        found = send_at_rate(address, INFER, 100, 50, 2, LIMIT_S)
    assert found.requests == found.send_delay.count == 50
    # Two at a time, 100 ms each, while one is due every 10 ms: the last ones wait for about 2 s.
    assert found.latency.greatest > 1.5e9


def test_what_is_not_answered_in_time_is_an_error() -> None:
    with peer(delay_ms=5000) as address, pytest.raises(TargetError, match=r"2 requests had no response within 0\.3 s"):
        send_requests(address, repeat(INFER), 2, 0.3)
