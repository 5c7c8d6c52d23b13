"""Responses about all models are made in turns of the loop, with other requests in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.eventloop import sliced_work
from support.http_application import House, Peer, identity_config, play
from support.served_models import write_model

NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [("GET", "/v2/models/stats", b"", "model_stats"), ("POST", "/v2/repository/index", b'{"ready":true}', "")],
)
def test_other_requests_come_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: bytes, key: str
) -> None:
    # One model in each turn of the loop.
    monkeypatch.setattr(sliced_work, "SLICE_NS", 1)
    for name in NAMES:
        write_model(tmp_path, name, identity_config(("0", "TYPE_FP32", "[-1]")))

    async def scenario(house: House, peer: Peer) -> None:
        with house.peer() as other:
            peer.receive(f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            assert not peer.transport.written
            assert (await other.ask("GET", "/v2/health/live")).status == 200
        found = (await peer.answer()).json
        assert [row["name"] for row in (found[key] if key else found)] == NAMES

    play(tmp_path, scenario)
