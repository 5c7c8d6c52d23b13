"""Compressed messages, honest and not."""

from __future__ import annotations

import gzip
import os
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.wire.compression import compress
from naiad.wire.grpc.compression import (
    ACCEPTED,
    LEVELS,
    DecompressionError,
    MessageTooLargeError,
    best_encoding,
    decompress,
)

MEGABYTE = 1 << 20
ENCODINGS = pytest.mark.parametrize("encoding", ["gzip", "deflate"])


@ENCODINGS
@pytest.mark.parametrize("level", LEVELS.values())
@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_messages_come_back_as_they_were(encoding: str, level: int, parts: list[bytes], repeated: int) -> None:
    parts = parts * repeated
    packed = compress(parts, encoding, level)
    assert decompress(packed, encoding, 1 << 20) == b"".join(parts)
    assert zlib.decompress(packed, 31 if encoding == "gzip" else 15) == b"".join(parts)
    assert decompress(memoryview(bytearray(packed)), encoding, 1 << 20) == b"".join(parts)


def test_arrays_are_taken_as_their_bytes() -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    packed = compress((b"<", array, np.empty((0, 3), np.int8), memoryview(b">")), "gzip", 1)
    assert decompress(packed, "gzip", 1000) == b"<" + array.tobytes() + b">"


def test_what_other_programs_packed_is_read() -> None:
    body = os.urandom(3 * MEGABYTE) + bytes(5 * MEGABYTE)
    assert decompress(gzip.compress(body), "gzip", len(body)) == body
    assert decompress(zlib.compress(body), "deflate", len(body)) == body


@ENCODINGS
def test_the_limit_is_exact(encoding: str) -> None:
    for size in (1, 1000, MEGABYTE, MEGABYTE + 1, 3 * MEGABYTE + 7):
        packed = compress((bytes(size),), encoding, 1)
        assert len(decompress(packed, encoding, size)) == size
        with pytest.raises(MessageTooLargeError, match=f"more than {size - 1} bytes") as caught:
            decompress(packed, encoding, size - 1)
        assert caught.value.grpc_code == 8


@pytest.mark.slow
@ENCODINGS
def test_a_bomb_costs_little_more_than_the_limit(encoding: str) -> None:
    bomb = compress((bytes(200 * MEGABYTE),), encoding, 9)
    assert len(bomb) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLargeError):
            decompress(bomb, encoding, 4 * MEGABYTE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * MEGABYTE


@ENCODINGS
@pytest.mark.parametrize("cut", [0, 1, 5, 10, 20, -1, -4, -8])
def test_messages_that_are_cut_off(encoding: str, cut: int) -> None:
    packed = compress((os.urandom(500),), encoding, 5)[:cut]
    with pytest.raises(DecompressionError, match=encoding) as caught:
        decompress(packed, encoding, 1000)
    assert caught.value.grpc_code == 13


@ENCODINGS
def test_messages_that_go_on_behind_their_end(encoding: str) -> None:
    packed = compress((b"x" * 500,), encoding, 5)
    for more in (b"\0", b"garbage", packed):
        with pytest.raises(DecompressionError):
            decompress(packed + more, encoding, 10_000)


@ENCODINGS
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 60), st.integers(0, 255))
def test_any_bytes_are_a_message_or_an_error(encoding: str, noise: bytes, at: int, value: int) -> None:
    damaged = bytearray(compress((b"some bytes that are packed",), encoding, 5))
    damaged[at % len(damaged)] = value
    for raw in (noise, bytes(damaged), bytes(damaged) + noise):
        try:
            assert len(decompress(raw, encoding, 1000)) <= 1000
        except (DecompressionError, MessageTooLargeError):
            pass


@ENCODINGS
def test_the_other_encoding_is_refused(encoding: str) -> None:
    other = "gzip" if encoding == "deflate" else "deflate"
    with pytest.raises(DecompressionError):
        decompress(compress((b"x" * 100,), other, 5), encoding, 1000)


@pytest.mark.slow
def test_time_grows_with_the_size_and_not_with_its_square() -> None:
    body = os.urandom(16 * MEGABYTE)
    packed = compress((body,), "gzip", 1)
    began = time.thread_time()
    zlib.decompress(packed, 31)
    plain = time.thread_time() - began
    began = time.thread_time()
    assert decompress(packed, "gzip", len(body)) == body
    assert time.thread_time() - began < 5 * plain + 0.05


def test_small_messages_one_after_another_are_no_way_to_spend_time() -> None:
    members = compress((b"",), "gzip", 1) * 100_000
    began = time.thread_time()
    with pytest.raises(DecompressionError):
        decompress(members, "gzip", MEGABYTE)
    assert time.thread_time() - began < 0.5


@pytest.mark.parametrize(
    ("accepted", "best"),
    [
        ("", "identity"),
        ("identity", "identity"),
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("identity, deflate, gzip", "gzip"),
        ("identity,deflate", "deflate"),
        (" gzip ", "gzip"),
        ("br,snappy", "identity"),
        (ACCEPTED, "gzip"),
        (",,,", "identity"),
    ],
)
def test_the_encoding_of_answers(accepted: str, best: str) -> None:
    assert best_encoding(accepted) == best
