"""The short way through header blocks gives what the full decoder gives, or leaves the block to it."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hpack.exceptions import HPACKError
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.http2.fields import checked
from naiad.wire.http2.frames import Http2StreamError
from naiad.wire.http2.known_fields import MAX_CACHED_FIELDS, KnownFields
from support.kept_objects import kept

LIST_BYTES = 16_384
COMMON = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("te", "trailers"), ("user-agent", "x")]

names = st.one_of(st.sampled_from([name for name, _ in COMMON]), st.text("abc-", min_size=1, max_size=140))
values = st.one_of(st.text("abc 019", max_size=20), st.text("xyz", min_size=100, max_size=300))


def usual(decoder: Decoder, block: bytes) -> list[tuple[str, str]] | None:
    """What the full decoder makes of a block; None for one that is refused."""
    try:
        return [checked(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except (HPACKError, Http2StreamError, IndexError, ValueError):
        return None


def primed() -> tuple[Encoder, Decoder, KnownFields]:
    """Both ends of a connection after the first request, which filled the header table."""
    encoder, decoder = Encoder(), Decoder(LIST_BYTES)
    decoder.decode(encoder.encode(COMMON))
    return encoder, decoder, KnownFields(decoder.header_table, LIST_BYTES)


@given(st.lists(st.tuples(names, values), max_size=6), st.booleans())
def test_blocks_of_encoders(fields: list[tuple[str, str]], huffman: bool) -> None:
    """Also where each field is seen a second time. Names and values of usual lengths are read the short way."""
    encoder, decoder, known = primed()
    block = encoder.encode([*COMMON, *((name, value, True) for name, value in fields)], huffman=huffman)
    wanted = usual(decoder, block)
    for _ in range(2):
        found = known.read(block)
        if found is None:
            assert wanted is None or any(len(n) > 126 or len(v) > 253 for n, v in fields)
        else:
            assert found == wanted


@pytest.mark.slow
@given(st.binary(max_size=80))
def test_any_bytes(block: bytes) -> None:
    _, decoder, known = primed()
    before = list(decoder.header_table.dynamic_entries)
    found = known.read(block)
    if found is not None:
        assert found == usual(decoder, block)
        assert list(decoder.header_table.dynamic_entries) == before


@given(st.binary(max_size=60), st.lists(st.binary(min_size=1, max_size=6), max_size=3))
def test_bytes_after_fields_that_are_known(tail: bytes, middle: list[bytes]) -> None:
    encoder, decoder, known = primed()
    block = encoder.encode(COMMON)
    assert known.read(block) == COMMON
    block += b"".join(middle) + tail
    found = known.read(block)
    assert found is None or found == usual(decoder, block)


def test_a_changed_table_changes_the_meaning() -> None:
    encoder, decoder, known = primed()
    block = encoder.encode(COMMON)
    assert known.read(block) == COMMON
    newer = encoder.encode([("x", "new")])
    assert known.read(newer) is None
    decoder.decode(newer)
    known.forget()
    assert known.read(block) == usual(decoder, block) != COMMON


def test_a_list_that_is_too_large_is_left_alone() -> None:
    encoder, _, known = primed()
    fields = [(f"name-{n}", "v" * 200, True) for n in range(80)]
    assert known.read(encoder.encode(fields)) is None


def test_what_is_kept_is_bounded() -> None:
    encoder, _, known = primed()
    for n in range(3 * MAX_CACHED_FIELDS):
        block = encoder.encode([*COMMON, ("x-id", str(n), True)])
        assert known.read(block) == [*COMMON, ("x-id", str(n))]
    assert sum(isinstance(one, str) and one.isdigit() for one in kept(known)) <= MAX_CACHED_FIELDS
