"""Request heads, their memo and response heads."""

from __future__ import annotations

import pytest

from naiad.wire.http1.head import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    HeadMemo,
    HttpError,
    RequestHead,
    adapt_response,
    encode_head,
    parse_head,
)


def head(*lines: str, start: str = "POST /v2/models/m/infer HTTP/1.1") -> bytes:
    return "\r\n".join([start, *lines, "", ""]).encode("latin-1")


def refusal(raw: bytes) -> HttpError:
    with pytest.raises(HttpError) as caught:
        parse_head(raw)
    return caught.value


def test_a_usual_head_is_read() -> None:
    raw = head("Host: a:8000", "Content-Length: 207", "X-Trace:  t1 \t")
    parsed = parse_head(raw)
    assert (parsed.method, parsed.target, parsed.query) == ("POST", "/v2/models/m/infer", "")
    assert parsed.version == (1, 1)
    assert parsed.headers["host"] == "a:8000"
    assert parsed.headers["x-trace"] == "t1"
    assert parsed.content_length == 207
    assert parsed.keep_alive and parsed.plain and not parsed.chunked and not parsed.expect_continue
    assert parsed.handler is None
    assert parsed.request_bytes == len(raw) + 207


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/v2", "/v2", ""),
        ("/v2?a=b?c", "/v2", "a=b?c"),
        ("/v2/models/a%2Fb", "/v2/models/a%2Fb", ""),
        ("/v2/models/\xe9", "/v2/models/\xe9", ""),
        ("http://host:8000/v2?x", "/v2", "x"),
        ("HTTPS://host", "/", ""),
        ("*", "*", ""),
        ("host:80", "host:80", ""),
    ],
)
def test_targets(target: str, path: str, query: str) -> None:
    parsed = parse_head(head(start=f"GET {target} HTTP/1.1"))
    assert (parsed.target, parsed.query) == (path, query)


@pytest.mark.parametrize("method", ["GET", "PATCH", "BREW", "CONNECT", "PRI", "x-y_z"])
def test_any_token_is_a_method(method: str) -> None:
    assert parse_head(head("Host: a", start=f"{method} / HTTP/1.1")).method == method


def test_repeated_headers_are_joined() -> None:
    assert parse_head(head("Accept: a", "ACCEPT: b")).headers == {"accept": "a, b"}


def test_an_offered_upgrade_is_ignored() -> None:
    parsed = parse_head(head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 3"))
    assert parsed.keep_alive
    assert parsed.content_length == 3


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive", "plain"),
    [
        ("1.1", None, True, True),
        ("1.1", "close", False, False),
        ("1.1", "TE, Close", False, False),
        ("1.2", None, True, True),
        ("1.0", None, False, False),
        ("1.0", "Keep-Alive", True, False),
        ("1.0", "keep-alive, close", False, False),
    ],
)
def test_persistence(version: str, connection: str | None, keep_alive: bool, plain: bool) -> None:
    lines = [] if connection is None else [f"Connection: {connection}"]
    parsed = parse_head(head(*lines, start=f"GET / HTTP/{version}"))
    assert (parsed.keep_alive, parsed.plain) == (keep_alive, plain)


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 3", "Content-Length: 3"],
        ["Content-Length: 3", "Content-Length: 4"],
        ["Content-Length: 3, 3"],
        ["Content-Length: +3"],
        ["Content-Length: -3"],
        ["Content-Length: 0x3"],
        ["Content-Length: "],
        ["Content-Length: 99999999999999999999"],
        ["Content-Length: 3", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 3"],
        ["Transfer-Encoding: chunked, gzip"],
        ["Host: a", "Host: b"],
        ["Host : a"],
        ["Host: a", " folded"],
        ["X: a\x00b"],
        ["X: a\rb"],
        ["X: a\nY: b"],
        ["no colon"],
        [": no name"],
        ["X@: y"],
    ],
)
def test_malformed_headers_are_refused(lines: list[str]) -> None:
    assert refusal(head(*lines)).status == 400


@pytest.mark.parametrize(
    "line",
    [
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /#x HTTP/1.1",
        "GET /\x7f HTTP/1.1",
        "G\tT / HTTP/1.1",
        "GET / HTTP/11",
        "GET / ICE/1.0",
        "GET /\nX: y HTTP/1.1",
        "",
    ],
)
def test_malformed_request_lines_are_refused(line: str) -> None:
    assert refusal(head("Host: a", start=line)).status == 400


def test_transfer_encoding_has_no_place_in_http_1_0() -> None:
    assert refusal(head("Transfer-Encoding: chunked", start="POST / HTTP/1.0")).status == 400


def test_unknown_transfer_codings_are_not_implemented() -> None:
    assert refusal(head("Transfer-Encoding: gzip, chunked")).status == 501


def test_expectations() -> None:
    assert parse_head(head("Expect: 100-Continue")).expect_continue
    assert not parse_head(head("Expect: 100-continue", start="POST / HTTP/1.0")).expect_continue
    assert refusal(head("Expect: the unexpected")).status == 417


def test_another_major_version_is_named() -> None:
    error = refusal(b"PRI * HTTP/2.0\r\n\r\n")
    assert error.status == 505
    assert "HTTP/2.0" in error.message


def test_sizes_are_bounded() -> None:
    assert refusal(head("X: " + "y" * MAX_HEAD_BYTES)).status == 431
    assert refusal(head(*["X: y"] * (MAX_HEADERS + 1))).status == 431
    assert parse_head(head(*["X: y"] * MAX_HEADERS)).headers["x"].count("y") == MAX_HEADERS


def test_the_memo_keeps_a_head_from_its_second_appearance() -> None:
    memo = HeadMemo()
    first, second, third = (memo.get(head("Host: a")) for _ in range(3))
    assert first is not second
    assert second is third
    assert memo.known == {second.raw: second}


def test_a_head_is_completed_before_it_is_kept() -> None:
    completed: list[RequestHead] = []

    def complete(found: RequestHead) -> None:
        completed.append(found)
        if found.target == "/refused":
            raise HttpError(400, "no")

    memo = HeadMemo(complete=complete)
    kept = [memo.get(head("Host: a")) for _ in range(3)][2]
    assert completed[1:] == [kept]
    for _ in range(3):
        with pytest.raises(HttpError):
            memo.get(head("Host: a", start="GET /refused HTTP/1.1"))
    assert len(completed) == 5
    assert list(memo.known.values()) == [kept]


def test_varying_heads_do_not_fill_the_memo() -> None:
    memo = HeadMemo(entries=4)
    kept = [memo.get(head("Host: a")) for _ in range(2)][1]
    for number in range(100):
        memo.get(head(f"Traceparent: {number}"))
    assert memo.known == {kept.raw: kept}


def test_the_memo_is_bounded() -> None:
    memo = HeadMemo(entries=4, max_bytes=100)
    for number in range(50):
        for _ in range(2):
            memo.get(head(f"X: {number}"))
    assert len(memo.known) <= 4
    long = head("X: " + "y" * 100)
    assert memo.get(long) is not memo.get(long)


def test_response_heads() -> None:
    assert encode_head(200, "application/json", 2) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
    )
    assert encode_head(405, "", 0, [("Allow", "GET")]) == (
        b"HTTP/1.1 405 Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\n\r\n"
    )


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb"])
def test_response_headers_cannot_be_forged(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        encode_head(200, "text/plain", 0, [("X", value)])


def test_a_response_is_adapted() -> None:
    whole = encode_head(200, "text/plain", 4) + b"ab"
    parts = [whole, b"cd"]
    assert adapt_response(parts, "close", False) == [
        encode_head(200, "text/plain", 4, [])[:-2] + b"Connection: close\r\n\r\nab",
        b"cd",
    ]
    assert adapt_response(parts, "", True) == [encode_head(200, "text/plain", 4)]
