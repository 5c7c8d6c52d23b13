"""JSON of many tiny values costs a parser far more than its bytes suggest; the event loop is not held up for it."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

from naiad.frontends.http.json_worker.pool import LARGE_JSON_BYTES, MANY_VALUES, MANY_VALUES_BYTES, is_large_json
from support.http_application import House, Peer, play
from support.served_models import identity, write_model

SIZE = LARGE_JSON_BYTES - 500
# For all bodies together: far more than is spent, and less than half of what they would take on the loop.
HELD_UP_S = 0.3


def repeated(item: bytes, size: int = SIZE) -> bytes:
    return b"[" + b",".join([item] * (size // (len(item) + 1))) + b"]"


def with_data(data: bytes) -> bytes:
    return b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[3],"data":%b}]}' % data


BODIES = {
    "lists": with_data(repeated(b"[]")),
    "lists of one": with_data(repeated(b"[1]")),
    "uneven lists": with_data(repeated(b"[1,[1]]")),
    "objects": with_data(repeated(b"{}")),
    "integers": with_data(repeated(b"1")),
    "inputs": b'{"inputs":%b}' % repeated(b"[]"),
    "whole inputs": b'{"inputs":%b}' % repeated(b'{"name":"a","datatype":"INT32","shape":[1],"data":[1]}'),
    "outputs": b'{"inputs":[],"outputs":%b}' % repeated(b'{"name":"a"}'),
    "dimensions": b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":%b,"data":[1]}]}' % repeated(b"1"),
    "parameters": b'{"inputs":[],"parameters":{%b}}' % b",".join(b'"%x":1' % n for n in range(SIZE // 11)),
    "bare words": b'{"a":NaN,"inputs":%b' % repeated(b"[]"),
    "base64 of another length": with_data(b'{"b64":"%b"}' % (b"A" * SIZE)),
    "base64 with a wrong end": with_data(b'{"b64":"%b*"}' % (b"A" * SIZE)),
    "just below": with_data(repeated(b"[1]", 4 * MANY_VALUES - 50)),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    write_model(folder, "same", identity(delay_ms=1))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("way", ["infer", "generate"])
def test_the_loop_is_not_held_up(repository: Path, way: str) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        # The process is there before anything is measured; a server does not look through what it has loaded, either.
        assert (await peer.ask("POST", f"/v2/models/same/{way}", BODIES["lists"])).status == 400
        gc.freeze()
        spent = {}
        for name, body in BODIES.items():
            if way == "generate":
                body = body.replace(b'"inputs"', b'"INPUT0"')
            assert len(body) < LARGE_JSON_BYTES
            begun = time.thread_time()
            answer = await peer.ask("POST", f"/v2/models/same/{way}", body)
            spent[name] = time.thread_time() - begun
            assert answer.status == 400, name
            assert answer.error
        gc.unfreeze()
        assert sum(spent.values()) < HELD_UP_S, spent

    play(repository, scenario)


def test_what_counts_as_large() -> None:
    few = b"[" + b"1.2345678901234567890," * (MANY_VALUES_BYTES // 16) + b"1]"
    assert MANY_VALUES_BYTES < len(few) < LARGE_JSON_BYTES
    assert not is_large_json(few)
    assert not is_large_json(b"," * (MANY_VALUES_BYTES - 1))
    for kind in (bytes, bytearray, memoryview):
        assert is_large_json(kind(b"1," * MANY_VALUES))
        assert is_large_json(kind(bytes(LARGE_JSON_BYTES)))
