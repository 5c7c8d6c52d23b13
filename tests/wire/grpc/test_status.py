"""Status texts as they travel."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.grpc.status import MAX_TEXT_BYTES, Status, encode_text, shorten_text

TEXTS = st.text(max_size=300) | st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7F), max_size=300)


@given(TEXTS)
def test_texts_come_back_as_they_were(text: str) -> None:
    encoded = encode_text(text)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    # Fields may not begin or end with white space (RFC 9113, section 8.2.1).
    assert encoded.strip() == encoded


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("", b""),
        ("plain text, with: signs!~", b"plain text, with: signs!~"),
        ("100%", b"100%25"),
        ("a\nb\r\t\0", b"a%0Ab%0D%09%00"),
        (" both ends ", b"%20both ends%20"),
        (" ", b"%20"),
        ("caf\u00e9 \u2603 \U0001f600", b"caf%C3%A9 %E2%98%83 %F0%9F%98%80"),
        ("\x7f", b"%7F"),
        ("\ud800", b"?"),
    ],
)
def test_how_texts_are_written(text: str, encoded: bytes) -> None:
    assert encode_text(text) == encoded


@pytest.mark.slow
@given(st.integers(0, 3 * MAX_TEXT_BYTES), st.sampled_from(["x", "%", "\u00e9", "\u2603", "\U0001f600", "a\u2603"]))
def test_long_texts_are_cut_between_characters(length: int, unit: str) -> None:
    text = unit * length
    encoded = encode_text(text)
    assert len(encoded) <= MAX_TEXT_BYTES
    decoded = unquote_to_bytes(encoded).decode()
    if decoded != text:
        begin, _, end = decoded.partition("...")
        assert text.startswith(begin)
        assert text.endswith(end)
        # No more was cut than had to be, and on both sides of it alike.
        assert len(encoded) > MAX_TEXT_BYTES - 30
        assert abs(len(begin) - len(end)) < 2


@given(TEXTS)
def test_a_shortened_text_is_what_the_encoded_one_says(text: str) -> None:
    text *= 40
    assert unquote_to_bytes(encode_text(text)).decode() == shorten_text(text)


def test_the_codes() -> None:
    assert [(code.name, code.value) for code in Status][:3] == [("OK", 0), ("CANCELLED", 1), ("UNKNOWN", 2)]
    assert len(Status) == 17
    assert Status.UNAUTHENTICATED == 16
