"""Responses of HTTP/1.1, however their bytes are cut."""

from __future__ import annotations

import pytest

from naiad.perf.target.http_response import BadResponseError, HttpResponseReader
from naiad.wire.http1.head import HttpError

SIZED = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED


def read(pieces: list[bytes], *, keeps_body: bool = True) -> HttpResponseReader:
    """A reader that has been given all pieces of one response."""
    reader = HttpResponseReader()
    *first, last = pieces
    for piece in first:
        assert not reader.feed(piece, keeps_body=keeps_body)
    assert reader.feed(last, keeps_body=keeps_body)
    assert reader.is_idle
    return reader


@pytest.mark.parametrize("response", [SIZED, CHUNKED, CONTINUED])
def test_any_cut_gives_the_same_response(response: bytes) -> None:
    for at in range(1, len(response)):
        found = read([response[:at], response[at:]])
        assert (found.status, bytes(found.body or b""), found.closes) == (200, b"hello", False)
    found = read([bytes([byte]) for byte in response])
    assert bytes(found.body or b"") == b"hello"


def test_bodies_of_successes_are_dropped_unless_they_are_wanted() -> None:
    assert read([SIZED], keeps_body=False).body is None
    failure = SIZED.replace(b"200 OK", b"503 No")
    found = read([failure], keeps_body=False)
    assert (found.status, found.body) == (503, b"hello")


def test_a_reader_goes_on_to_the_next_response() -> None:
    reader = HttpResponseReader()
    for body in (b"one", b"three"):
        text = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        assert reader.feed(text, keeps_body=True)
        assert (reader.body, reader.length) == (body, len(text))


def test_a_response_that_lasts_to_the_end_of_the_connection() -> None:
    reader = HttpResponseReader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\n\r\nsome", keeps_body=True)
    assert not reader.feed(b" text", keeps_body=True)
    assert reader.end()
    assert (reader.body, reader.closes, reader.length) == (b"some text", True, 0)


def test_an_end_in_the_middle_is_no_response() -> None:
    reader = HttpResponseReader()
    reader.feed(SIZED[:-1], keeps_body=True)
    assert not reader.end()


def test_a_response_that_announces_the_end_of_the_connection() -> None:
    assert read([SIZED.replace(b"Server: x", b"Connection: close")]).closes


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", BadResponseError),
        (b"HTTP/1.1 abc OK\r\n\r\n", BadResponseError),
        (SIZED + b"more", BadResponseError),
        (b"x" * 70_000, BadResponseError),
        (CHUNKED.replace(b"2\r\nhe", b"zz\r\nhe"), HttpError),
    ],
)
def test_what_is_no_response_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        HttpResponseReader().feed(data, keeps_body=True)
