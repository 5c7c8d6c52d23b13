"""The chunked transfer coding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.http1.chunked import MAX_CHUNKS, ChunkedDecoder
from naiad.wire.http1.head import HttpError


def feed_all(decoder: ChunkedDecoder, data: bytes, step: int) -> int:
    """Feed in pieces until the decoder is done; gives back how many bytes it used."""
    used = 0
    while used < len(data) and not decoder.done:
        used += decoder.feed(memoryview(data)[used : used + step])
    return used


def refusal(data: bytes, limit: int = 100) -> HttpError:
    with pytest.raises(HttpError) as caught:
        feed_all(ChunkedDecoder(limit), data, len(data))
    return caught.value


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_a_body_with_extensions_and_trailers(step: int) -> None:
    data = b"4;name=value\r\nabcd\r\n00A \r\n0123456789\r\n0\r\nDigest: x\r\nB:\r\n\r\n"
    decoder = ChunkedDecoder(14)
    assert feed_all(decoder, data + b"NEXT", step) == len(data)
    assert decoder.done
    assert decoder.body == b"abcd0123456789"


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_small_chunks_before_and_behind_others(step: int) -> None:
    small = b"1\r\nx\r\n" * 3
    data = small + b"2;a\r\nyy\r\n" + small + b"0003\r\nzzz\r\n" + small + b"0\r\n\r\n"
    decoder = ChunkedDecoder(100)
    assert feed_all(decoder, data + small, step) == len(data)
    assert decoder.body == b"xxxyyxxxzzzxxx"


@pytest.mark.parametrize("end", [b"\r\r", b"\n\n", b"xx", b"x\r\n"])
def test_small_chunks_end_as_others_do(end: bytes) -> None:
    assert refusal(b"1\r\nx\r\n1\r\nx" + end + b"1\r\nx\r\n").status == 400


def test_an_unfinished_body_is_not_done() -> None:
    decoder = ChunkedDecoder(100)
    assert feed_all(decoder, b"4\r\nabcd\r\n0\r\n", 100) == 12
    assert not decoder.done


@pytest.mark.parametrize(
    "data",
    [
        b"g\r\n",
        b"\r\n",
        b"-1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1\n\r\n",
        b"1;a\x00\r\n",
        b"11111111111111111\r\n",
        b"1\r\nabc",
        b"1\r\na\n\r",
        b"1" * 1100,
        b"0\r\nno colon\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"0\r\nA: " + b"x" * 9000,
        b"0\r\n" + b"A: x\r\n" * 2000,
    ],
)
def test_malformed_codings_are_refused(data: bytes) -> None:
    assert refusal(data).status == 400


def test_the_body_is_bounded_before_its_data_arrives() -> None:
    assert refusal(b"64\r\n" + b"x" * 100 + b"\r\n1\r\n").status == 400
    error = refusal(b"FFFFFFFFFFFFFFF\r\n")
    assert error.status == 400
    assert "--http-max-input-size" in error.message


def test_the_number_of_chunks_is_bounded() -> None:
    decoder = ChunkedDecoder(1 << 20)
    feed_all(decoder, b"1\r\nx\r\n" * MAX_CHUNKS, 1 << 20)
    assert len(decoder.body) == MAX_CHUNKS
    with pytest.raises(HttpError, match="exceeds maximum of 65536 non-empty chunks"):
        decoder.feed(memoryview(b"1\r\nx\r\n"))


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.integers(1, 60))
def test_what_was_encoded_comes_back(chunks: list[bytes], step: int) -> None:
    data = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    decoder = ChunkedDecoder(1000)
    assert feed_all(decoder, data + b"rest", step) == len(data)
    assert decoder.done
    assert decoder.body == b"".join(chunks)
