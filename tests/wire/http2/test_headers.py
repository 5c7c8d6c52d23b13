"""Header blocks of requests: with the memo they mean what they mean without, and what is not proper is refused."""

from __future__ import annotations

import time

import pytest
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.wire.http2.frames import Http2ConnectionError, Http2ErrorCode, Http2StreamError
from naiad.wire.http2.headers import MAX_CACHED_HEADS, MAX_HEADER_LIST_BYTES, HeaderReader, Http2RequestHead
from support.h2_frames import call_headers, plain_block

PATHS = ["/a", "/b", "/inference.GRPCInferenceService/ModelInfer"]
NAMES = ["x-a", "x-b", "te", "grpc-timeout", "authorization", "user-agent", "x-long-bin"]
VALUES = ["", "1", "2S", "v" * 40, "w" * 300, "trailers"]


def reader() -> HeaderReader:
    return HeaderReader(lambda head: object())


def merged(fields: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields:
        if not name.startswith(b":"):
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]},{text}" if key in headers else text
    return headers


def ask(read: HeaderReader, block: bytes) -> Http2RequestHead:
    """As a connection does: what is known first."""
    return read.known.get(block) or read.read(block)


fields = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES), st.booleans()).filter(
        lambda field: field[0] != "te" or field[1] == "trailers"
    ),
    max_size=6,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from(PATHS), fields, st.booleans()),
        st.tuples(st.just("again"), st.integers(0, 20), st.just([]), st.just(False)),
        st.tuples(st.just("size"), st.sampled_from([0, 40, 100, 300, 1000, 4096]), st.just([]), st.just(False)),
        st.tuples(st.just("trailers"), st.just(0), fields, st.booleans()),
    ),
    max_size=40,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(steps)
def test_blocks_mean_the_same_with_and_without_the_memo(
    steps: list[tuple[str, int | str, list[tuple[str, str, bool]], bool]],
) -> None:
    read, plain, encoder = reader(), Decoder(), Encoder()
    calls: list[tuple[str, list[tuple[str, str, bool]], bool]] = []
    for step, which, more, huffman in steps:
        if step == "size":
            assert isinstance(which, int)
            # Equal sizes confuse this encoder, and it would announce each of several changes in a row.
            if not encoder.header_table.resized and which != encoder.header_table_size:
                encoder.header_table_size = which
            continue
        extra = [
            NeverIndexedHeaderTuple(name, value) if sensitive else (name, value) for name, value, sensitive in more
        ]
        if step == "trailers":
            block = encoder.encode([field for field in extra if field[0] != "te"], huffman=huffman)
            read.read_trailers(block)
            plain.decode(block, raw=True)
            continue
        if step == "again" and calls:
            assert isinstance(which, int)
            path, more, huffman = calls[which % len(calls)]
            extra = [(name, value) for name, value, _ in more]
        else:
            path = str(which) if step == "call" else "/again"
            calls.append((path, more, huffman))
        block = encoder.encode(call_headers(path)[:4] + extra, huffman=huffman)
        found = ask(read, block)
        expected = [(bytes(name), bytes(value)) for name, value in plain.decode(block, raw=True)]
        assert (found.method, found.path, found.headers) == ("POST", path, merged(expected))
        assert found.route is not None


raw_fields = st.lists(
    st.sampled_from(
        [
            b"\x20",
            b"\x3f\xe1\x1f",  # 4096
            b"\x3f\x0b",  # 42
            b"\x40\x03x-a\x01b",
            b"\x40\x03x-c\x01d",
            b"\x00\x03x-e\x01f",
            b"\x10\x03x-g\x01h",
            b"\x44\x02/z",
            b"\x40\x03x-l\x7f\x81\x05" + b"l" * 768,
            b"\xbe",
            b"\xbf",
            b"\x7e\x01i",
        ]
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.lists(raw_fields, min_size=1, max_size=12), st.lists(st.integers(0, 11), max_size=30))
def test_hand_made_blocks_mean_the_same_too(blocks: list[list[bytes]], order: list[int]) -> None:
    base = plain_block([(":method", "POST"), (":scheme", "http"), (":path", "/a")])
    read, plain = reader(), Decoder()
    for at in order:
        chosen = blocks[at % len(blocks)]
        resizes = [field for field in chosen if field[0] & 0xE0 == 0x20][:2]
        block = b"".join([*resizes, base, *[field for field in chosen if field[0] & 0xE0 != 0x20]])
        try:
            expected = [(bytes(name), bytes(value)) for name, value in plain.decode(block, raw=True)]
        except Exception:
            with pytest.raises(Http2ConnectionError):
                ask(read, block)
            return
        if any(name.startswith(b":") for name, _ in expected[3:]):
            with pytest.raises(Http2StreamError):
                ask(read, block)
            continue
        assert ask(read, block).headers == merged(expected)


def test_a_block_that_is_known_is_not_read_again() -> None:
    found = []
    read = HeaderReader(lambda head: found.append(head) or head)
    encoder = Encoder()
    heads = [ask(read, encoder.encode(call_headers("/a"))) for _ in range(10)]
    # The first fills the table, the second is remembered.
    assert len(found) == 2
    assert heads[1] is heads[9]


def test_the_memo_is_bounded() -> None:
    read = reader()
    for i in range(10 * MAX_CACHED_HEADS):
        ask(read, plain_block(call_headers(f"/{i}")))
        assert len(read.known) <= MAX_CACHED_HEADS
    for i in range(10):
        ask(read, plain_block(call_headers("/a", ("x", f"{i}" * 8000))))
    assert sum(map(len, read.known)) < MAX_CACHED_HEADS * 1100


def test_repeated_names_are_joined_in_their_order() -> None:
    block = plain_block(
        call_headers("/a", ("x", "1"), ("y", ""), ("x", "2"), ("x", "1"), ("z-bin", "AA=="), ("z-bin", "BB"))
    )
    headers = reader().read(block).headers
    assert (headers["x"], headers["y"], headers["z-bin"]) == ("1,2,1", "", "AA==,BB")


def test_values_beyond_ascii_are_latin_1() -> None:
    assert reader().read(plain_block(call_headers("/a", ("x", "\xe9\xff")))).headers["x"] == "\xe9\xff"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_head_or_an_error(block: bytes) -> None:
    for start in (b"", plain_block(call_headers("/a"))):
        read = reader()
        try:
            assert isinstance(read.read(start + block), Http2RequestHead)
        except (Http2ConnectionError, Http2StreamError) as error:
            assert error.code in (
                Http2ErrorCode.COMPRESSION_ERROR,
                Http2ErrorCode.PROTOCOL_ERROR,
                Http2ErrorCode.ENHANCE_YOUR_CALM,
            )


@given(st.binary(max_size=60))
def test_any_bytes_are_trailers_or_an_error(block: bytes) -> None:
    try:
        reader().read_trailers(block)
    except (Http2ConnectionError, Http2StreamError) as error:
        assert error.code in (
            Http2ErrorCode.COMPRESSION_ERROR,
            Http2ErrorCode.PROTOCOL_ERROR,
            Http2ErrorCode.ENHANCE_YOUR_CALM,
        )


# A table entry of 4000 bytes, then one byte for each time that it is named.
BOMB = b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 1000
BASE = plain_block(call_headers("/a"))


@pytest.mark.parametrize(
    ("block", "code"),
    [
        (BASE + BOMB, Http2ErrorCode.ENHANCE_YOUR_CALM),
        (BASE + b"\x00\x01x\x00" * 600, Http2ErrorCode.ENHANCE_YOUR_CALM),
        (BASE + b"\x90" * 5000, Http2ErrorCode.ENHANCE_YOUR_CALM),
        (plain_block(call_headers("/a", ("x", "y" * MAX_HEADER_LIST_BYTES))), Http2ErrorCode.ENHANCE_YOUR_CALM),
        (b"\x20" * 30_000 + BASE, Http2ErrorCode.COMPRESSION_ERROR),
        (b"\x20\x3f\xe1\x1f\x20" + BASE, Http2ErrorCode.COMPRESSION_ERROR),
        (BASE + b"\xff" + b"\x80" * 30_000, Http2ErrorCode.COMPRESSION_ERROR),
        (BASE + b"\x7f" + b"\xff" * 30_000, Http2ErrorCode.COMPRESSION_ERROR),
        (BASE + b"\x00\x7f\xff\xff\xff\xff\x07", Http2ErrorCode.COMPRESSION_ERROR),
        (BASE + b"\x00\x01x\x7f\xff\xff\xff\xff\x07", Http2ErrorCode.COMPRESSION_ERROR),
        (b"\x3f\xff\xff\xff\xff\x0f" + BASE, Http2ErrorCode.COMPRESSION_ERROR),
    ],
)
def test_bombs_are_refused_soon(block: bytes, code: Http2ErrorCode) -> None:
    began = time.process_time()
    with pytest.raises(Http2ConnectionError) as caught:
        reader().read(block)
    assert caught.value.code == code
    assert len(str(caught.value)) < 200
    assert time.process_time() - began < 0.5


def test_two_changes_of_the_table_size_are_taken() -> None:
    read = reader()
    assert read.read(b"\x20\x3f\xe1\x1f" + BASE).path == "/a"
    assert read.read(b"\x20" + BASE).path == "/a"


def test_the_largest_list_that_is_taken() -> None:
    fields = call_headers("/a")
    room = MAX_HEADER_LIST_BYTES - sum(32 + len(name) + len(value) for name, value in fields) - 33
    assert len(reader().read(plain_block([*fields, ("x", "y" * room)])).headers["x"]) == room
    with pytest.raises(Http2ConnectionError):
        reader().read(plain_block([*fields, ("x", "y" * (room + 1))]))
