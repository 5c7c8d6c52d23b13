"""Any body of a ``generate`` request is answered, with what the model made of it or with a clear error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from naiad.testing import write_model
from support.http_application import House, Peer, identity_config, play

NAMES = ("INPUT0", "INPUT1", "INPUT2", "parameters", "id", "n", "triton_n")
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from([2**64, -(2**70), 1e39])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
REQUESTS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6)


def write(members: list[tuple[str, Any]]) -> bytes:
    """A JSON object, in which names may be repeated."""
    return ("{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}").encode()


BODIES = REQUESTS.map(write) | st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode())


@pytest.mark.slow
@pytest.mark.parametrize("way", ["generate", "generate_stream"])
def test_every_body_is_answered(tmp_path: Path, way: str) -> None:
    tensors = (("0", "TYPE_STRING", "[ -1 ]"), ("1", "TYPE_FP32", "[ 1 ]"), ("2", "TYPE_INT8", "[ -1, 2 ]"))
    given_, _, made = identity_config(*tensors).partition("output [")
    write_model(tmp_path, "m", given_.replace("] }", "] optional: true }") + "output [" + made)
    statuses: set[bytes] = set()

    async def scenario(house: House, peer: Peer) -> None:
        @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
        @example(body=b'{"INPUT0":["a","b"],"INPUT1":1.5,"id":"7"}')
        @given(body=BODIES)
        def check(body: bytes) -> None:
            raw = f"POST /v2/models/m/{way} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            target = peer.connection.get_buffer(-1)
            target[: len(raw)] = raw
            peer.connection.buffer_updated(len(raw))
            written = bytes(peer.transport.written)
            peer.transport.written.clear()
            assert written.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 400 ")), written
            assert not peer.connection.pending
            statuses.add(written[9:12])

        check()
        assert statuses == {b"200", b"400"}

    play(tmp_path, scenario)
