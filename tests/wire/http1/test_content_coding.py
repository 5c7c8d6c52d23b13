"""Which coding an answer has, and its head."""

from __future__ import annotations

import pytest

from naiad.wire.http1.content_coding import best_coding, coded_head
from naiad.wire.http1.head import encode_head


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5, deflate;q=1", "deflate"),
        ("gzip;q=0.5, deflate;q=0.4", "gzip"),
        ("gzip; q=0.5 , deflate ; Q = 0.75", "deflate"),
        ("gzip;q=0", "identity"),
        ("gzip;q=0.0, deflate", "deflate"),
        ("br", "identity"),
        ("*", "identity"),
        ("br;q=1, gzip;q=0.1", "gzip"),
        ("identity, gzip", "identity"),
        ("identity;q=0.5, gzip;q=0.8", "gzip"),
        ("gzip;level=9", "identity"),
        ("gzip;q=high, deflate;q=-1", "identity"),
        (",,;q=1, ,gzip", "gzip"),
        ("x" * 60_000 + ",gzip", "gzip"),
    ],
)
def test_the_coding_with_the_highest_weight_is_taken(accepted: str, coding: str) -> None:
    assert best_coding(accepted) == coding


def test_the_head_says_coding_and_length() -> None:
    head = encode_head(200, "application/octet-stream", 1234, (("Inference-Header-Content-Length", "200"),))
    assert coded_head(head, "gzip", 99) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nInference-Header-Content-Length: 200\r\n"
        b"Content-Encoding: gzip\r\nContent-Length: 99\r\n\r\n"
    )
