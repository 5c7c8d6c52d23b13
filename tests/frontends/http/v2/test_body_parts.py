"""What the router tells the server of the bodies of inference requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.frontends.http.v2.body_parts import json_bytes
from naiad.wire.http1.head import HttpError, RequestHead, parse_head
from support.http_application import House, Peer, play
from support.served_models import identity, write_model

HEADER = "Inference-Header-Content-Length"


def head(*lines: str, path: str = "/v2/models/same/infer") -> RequestHead:
    return parse_head("\r\n".join((f"POST {path} HTTP/1.1", *lines, "", "")).encode("latin-1"))


@pytest.mark.parametrize(
    ("value", "length"),
    [("0", 0), ("12", 12), ("-5", -5), ("abc", 0), ("12x", 12), ("12, 12", 12), ("", 0), ("9" * 5000, 1 << 62)],
)
def test_the_length_is_read_as_the_reference_does(value: str, length: int) -> None:
    assert json_bytes(head(f"{HEADER}: {value}")) == length
    assert json_bytes(head("Host: a")) is None


@pytest.mark.parametrize("second", ["12", "13", ""])
def test_two_lengths_are_refused(second: str) -> None:
    with pytest.raises(HttpError, match="more than once") as caught:
        json_bytes(head(f"{HEADER}: 12", f"{HEADER.lower()}: {second}"))
    assert caught.value.status == 400


def test_the_server_learns_of_bodies_what_it_needs(tmp_path: Path) -> None:
    write_model(tmp_path, "same", identity())
    model = "/v2/models/same"

    async def scenario(house: House, peer: Peer) -> None:
        def told(path: str, *lines: str) -> tuple[int | None, int | None, bool]:
            found = head(*lines, path=path)
            house.router(found)
            return found.first_part_bytes, found.limited_bytes, found.needs_room

        assert told(f"{model}/infer") == (None, None, True)
        assert told(f"{model}/versions/1/infer", f"{HEADER}: 7") == (7, 7, True)
        # A compressed body is decompressed as a whole, and a raw tensor is all of the body.
        assert told(f"{model}/infer", f"{HEADER}: 7", "Content-Encoding: gzip") == (7, None, True)
        assert told(f"{model}/infer", f"{HEADER}: 0") == (0, None, True)
        for path in (f"{model}/generate", f"{model}/generate_stream"):
            assert told(path, f"{HEADER}: 7") == (None, None, True)
        for path in ("/v2/repository/models/same/load", "/anything/infer"):
            assert told(path, f"{HEADER}: 7") == (None, None, False)
        answer = await peer.ask("POST", f"{model}/infer", b"{}", {HEADER: 2, HEADER.lower(): 2})
        assert (answer.status, answer.headers["Connection"]) == (400, "close")
        assert "more than once" in answer.error

    play(tmp_path, scenario)
