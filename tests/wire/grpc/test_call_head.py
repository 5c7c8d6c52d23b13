"""What the header fields of a call say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.wire.grpc.call_head import NO_TIMEOUT, CallHead, parse_call_head
from naiad.wire.grpc.status import Status
from naiad.wire.http2.headers import Http2RequestHead

SECOND_NS = 10**9


def parsed(method: str = "POST", **headers: str) -> CallHead:
    fields = {"content-type": "application/grpc"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return parse_call_head(Http2RequestHead(method, "/service/method", fields))


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("1H", 3600 * SECOND_NS),
        ("2M", 120 * SECOND_NS),
        ("3S", 3 * SECOND_NS),
        ("4m", 4_000_000),
        ("5u", 5_000),
        ("6n", 6),
        ("0S", 0),
        ("00000007S", 7 * SECOND_NS),
        ("99999999H", 99_999_999 * 3600 * SECOND_NS),
    ],
)
def test_timeouts(value: str, ns: int) -> None:
    head = parsed(grpc_timeout=value)
    assert (head.timeout_ns, head.status, head.http_status) == (ns, Status.OK, 200)


@pytest.mark.parametrize(
    "value",
    ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", "1 S", " 1S", "1S ", "1S,2S", "\u00b2S", "1S\n", "H1"],
)
def test_malformed_timeouts(value: str) -> None:
    head = parsed(grpc_timeout=value)
    assert head.status == Status.INTERNAL
    assert repr(value) in head.text
    assert head.http_status == 200


def test_no_timeout() -> None:
    assert parsed().timeout_ns == NO_TIMEOUT


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("application/grpc", 200),
        ("application/grpc+proto", 200),
        ("application/grpc+json", 200),
        ("application/grpc;charset=utf-8", 200),
        ("application/grpc-web", 415),
        ("application/grpc-web+proto", 415),
        ("application/json", 415),
        ("text/plain, application/grpc", 415),
        ("", 415),
    ],
)
def test_content_types(value: str, status: int) -> None:
    assert parsed(content_type=value).http_status == status


def test_a_missing_content_type() -> None:
    assert parse_call_head(Http2RequestHead("POST", "/a", {})).http_status == 415


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "post", "CONNECT"])
def test_other_methods(method: str) -> None:
    assert parsed(method).http_status == 405


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
def test_encodings(encoding: str) -> None:
    head = parsed(grpc_encoding=encoding)
    assert (head.encoding, head.status) == (encoding, Status.OK)


@pytest.mark.parametrize("encoding", ["br", "snappy", "GZIP", "gzip,gzip", "", "x" * 1000])
def test_encodings_that_are_not_served(encoding: str) -> None:
    head = parsed(grpc_encoding=encoding)
    assert head.status == Status.UNIMPLEMENTED
    assert repr(encoding[:40]) in head.text
    assert "identity,gzip,deflate" in head.text
    assert len(head.text) < 200


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [("gzip,deflate", "gzip"), ("deflate", "deflate"), ("identity", "identity"), ("br", "identity")],
)
def test_encodings_of_answers(accepted: str, chosen: str) -> None:
    assert parsed(grpc_accept_encoding=accepted).response_encoding == chosen


def test_without_a_word_answers_are_not_compressed() -> None:
    head = parsed()
    assert (head.encoding, head.response_encoding) == ("identity", "identity")


def test_all_fields_are_metadata() -> None:
    head = parsed(x_a="b", key_bin="AA==")
    assert head.path == "/service/method"
    assert head.metadata == {"content-type": "application/grpc", "x-a": "b", "key-bin": "AA=="}


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["grpc-timeout", "grpc-encoding", "grpc-accept-encoding", "content-type"]), st.text()
    )
)
def test_any_values_give_a_head(headers: dict[str, str]) -> None:
    head = parse_call_head(Http2RequestHead("POST", "/a", headers))
    assert head.http_status in (200, 415)
    assert head.status in (Status.OK, Status.INTERNAL, Status.UNIMPLEMENTED)
    assert bool(head.status) == bool(head.text)
