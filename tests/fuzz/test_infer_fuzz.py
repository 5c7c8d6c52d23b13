"""Inference requests of every kind of wrong: each gets one answer, none is the server's error, none harms the next.

The bodies go to the real handlers over really loaded models. A run that takes no network and no clock is reproducible.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.frontends.http.v2.router import Router
from naiad.tensor.bytes_codec import encode_bytes
from naiad.tensor.dtypes import BY_WIRE
from naiad.testing import write_model
from support.http_application import House, Peer, identity_config, play, write_look_up

ROUNDS = 3000
MODELS = {
    "floats": [("FP32", (-1,))],
    "matrix": [("INT16", (-1, -1))],
    "pair": [("INT32", (2,)), ("BYTES", (-1,))],
    "halves": [("BF16", (2,)), ("FP16", (-1,)), ("BOOL", (1,))],
}
GOOD = {"inputs": [{"name": "INPUT0", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
WORDS: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 1e300, float("nan"), float("inf"),
    "", "x", "INPUT0", "INPUT1", "OUTPUT0", "FP32", "BYTES", "BF16", "é", "\ud800", "\x00", "a" * 300,
    [], {}, [[]], [1, [2, [3]]], [0, 2**62], [2**62, 0, 2**62], {"binary_data_size": 4}, {"binary_data": True},
    {"classification": 1}, {"shared_memory_region": "r"}, "AAAA", "AAA=", "base64", {"b64": "AAAAAA=="}, {"b64": 1},
    {"b64": "AAAA", "x": 1}, {"binary_data_encoding": "base64"}, {"binary_data_encoding": "hex"},
]  # fmt: skip
KEYS = [
    "id", "parameters", "inputs", "outputs", "name", "shape", "datatype", "data", "binary_data_size", "binary_data",
    "binary_data_output", "priority", "timeout", "sequence_id", "triton_x", "x", "b64",
    "binary_data_encoding",
]  # fmt: skip
LENGTHS = [0, 1, -1, 7, 10**9, 10**17, "x", "", "+3", "007"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name, tensors in MODELS.items():
        described = [
            (str(i), BY_WIRE[wire].config, str(list(dims)) if dims else "[ ]") for i, (wire, dims) in enumerate(tensors)
        ]
        write_model(tmp_path, name, identity_config(*described, more="max_batch_size: 4 dynamic_batching { }"))
    write_look_up(tmp_path)
    return tmp_path


class Dice(random.Random):
    """Makes requests: right ones, and then less and less right ones."""

    def request(self, model: str) -> tuple[dict[str, Any], bytes]:
        """A request that fits, each input in JSON, as a list or as base64, or behind it."""
        rows = self.randint(1, 4)
        inputs, tensors = [], b""
        for i, (wire, dims) in enumerate(MODELS[model]):
            shape = [rows, *(self.randint(0, 4) if d == -1 else d for d in dims)]
            array = np.ones(shape, BY_WIRE[wire].numpy) if wire != "BYTES" else np.full(shape, b"s", object)
            given: dict[str, Any] = {"name": f"INPUT{i}", "shape": shape, "datatype": wire}
            if self.random() < 0.5 and BY_WIRE[wire].in_json:
                given["data"] = ["s"] * array.size if wire == "BYTES" else array.tolist()
            else:
                raw = bytes(encode_bytes(array)) if wire == "BYTES" else array.tobytes()
                if self.random() < 0.5:
                    text = base64.b64encode(raw).decode()
                    self._put_base64(given, text)
                    inputs.append(given)
                    continue
                given["parameters"] = {"binary_data_size": len(raw)}
                tensors += raw
            inputs.append(given)
        format_ = self.choice([{"binary_data": True}, {"binary_data_encoding": "base64"}])
        wanted = [{"name": f"OUTPUT{i}", "parameters": format_} for i in range(len(inputs))]
        request = {"id": self.choice(["1", "é", 'a"b']), "inputs": inputs, "outputs": wanted}
        return dict(self.sample(list(request.items()), len(request))), tensors

    def _put_base64(self, given: dict[str, Any], text: str) -> None:
        if self.random() < 0.5:
            given["data"] = {"b64": text}
        else:
            given["data"], given["parameters"] = text, {"binary_data_encoding": "base64"}

    def spoil(self, value: Any) -> Any:
        """The same value with one thing in it replaced, added or left out."""
        if isinstance(value, dict) and value and self.random() < 0.8:
            key = self.choice(list(value))
            change = self.random()
            if change < 0.1:
                return {k: v for k, v in value.items() if k != key}
            if change < 0.2:
                return {**value, self.choice(KEYS): self.choice(WORDS)}
            return {**value, key: self.spoil(value[key])}
        if isinstance(value, list) and value and self.random() < 0.8:
            at = self.randrange(len(value))
            change = self.random()
            if change < 0.1:
                return value[:at] + value[at + 1 :]
            if change < 0.2:
                return [*value, value[at]]
            return [*value[:at], self.spoil(value[at]), *value[at + 1 :]]
        return self.choice(WORDS)

    def damage(self, raw: bytes) -> bytes:
        """Some bytes replaced, added or left out."""
        for _ in range(self.randint(0, 3)):
            at = self.randint(0, len(raw))
            piece = self.choice([b"", b"\x00", b'"', b"{", b"]", b"\\u0069", b"NaN", b"\xff", b"9" * 30, b'{"id":"1",'])
            raw = raw[:at] + piece + raw[at + self.randint(0, 3) :]
        return raw

    def body(self, model: str) -> tuple[bytes, object]:
        """A body and what its header says about the length of the JSON part (None: nothing)."""
        request, tensors = self.request(model)
        for _ in range(self.choice([0, 1, 1, 1, 2, 5])):
            request = self.spoil(request)
        text = json.dumps(request, separators=(",", ":"), ensure_ascii=self.random() < 0.5)
        raw = text.encode(errors="surrogatepass")
        if self.random() < 0.3:
            raw = self.damage(raw)
        length: object = len(raw)
        change = self.random()
        if change < 0.1:
            tensors = self.damage(tensors)
        elif change < 0.2:
            length = self.choice([*LENGTHS, len(raw) + self.randint(-9, 9), len(raw) + len(tensors)])
        elif change < 0.3:
            length = None
        elif change < 0.33:
            raw, tensors = self.randbytes(self.randint(0, 60)), b""
        return raw + tensors, length


def check_one(answer: Any, what: object) -> None:
    assert answer.status == 200 or 400 <= answer.status < 500 or answer.status in (501, 503), (answer, what)
    if answer.status == 200:
        answer.outputs()
    else:
        assert answer.error


async def check_good(peer: Peer) -> None:
    answer = await peer.infer("floats", GOOD)
    assert answer.status == 200
    assert answer.outputs()["OUTPUT0"].tolist() == [[1.0, 2.0]]


def no_errors(caplog: pytest.LogCaptureFixture) -> None:
    assert [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_bad_requests_are_answered_and_harm_nobody(
    repository: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    statuses: dict[int, int] = {}

    async def scenario(house: House, peer: Peer) -> None:
        caplog.clear()
        dice = Dice(seed)
        for i in range(ROUNDS):
            model = dice.choice(list(MODELS))
            body, length = dice.body(model)
            headers = {} if length is None else {"Inference-Header-Content-Length": length}
            for _ in range(dice.choice([1, 1, 2])):
                answer = await peer.ask("POST", f"/v2/models/{model}/infer", body, headers)
                check_one(answer, (model, body, length))
                statuses[answer.status] = statuses.get(answer.status, 0) + 1
            if i % 50 == 0:
                await check_good(peer)
        await check_good(peer)
        assert all(m.in_flight == m.statistics.pending == 0 for m in house.engine.loaded_models())
        no_errors(caplog)

    play(repository, scenario)
    assert statuses[200] > ROUNDS / 10, "too few requests were right to say anything"
    assert statuses[400] > ROUNDS / 3


@pytest.mark.parametrize("seed", range(3))
def test_what_was_noted_about_a_request_changes_no_answer(repository: Path, seed: int) -> None:
    """The same requests to a handler that has seen others, and to one that has seen none."""

    async def scenario(house: House, peer: Peer) -> None:
        dice = Dice(seed)
        for model in MODELS:
            target = f"/v2/models/{model}/infer"
            pool = [dice.body(model) for _ in range(25)]
            for _ in range(250):
                body, length = dice.choice(pool)
                if dice.random() < 0.5 and type(length) is int and 0 < length < len(body):
                    body = body[:length] + (
                        dice.damage(body[length:]) if dice.random() < 0.3 else bytes(len(body) - length)
                    )
                headers = {} if length is None else {"Inference-Header-Content-Length": length}
                with house.peer(Router(house.engine)) as stranger:
                    expected = await stranger.ask("POST", target, body, headers)
                for _ in range(2):
                    assert await peer.ask("POST", target, body, headers) == expected, (body, length)

    play(repository, scenario)


@pytest.mark.parametrize("make", [bytes, lambda n: b"\xff" * n, lambda n: b"[" * n, lambda n: b'{"inputs":' * n])
def test_any_length_of_the_same(repository: Path, make: Callable[[int], bytes]) -> None:
    async def scenario(house: House, peer: Peer) -> None:
        for size in (1, 2, 3, 64, 4096, 100_000):
            body = make(size)
            for length in (None, 0, 1, len(body) // 2, len(body) - 1, len(body), len(body) + 1):
                headers = {} if length is None else {"Inference-Header-Content-Length": length}
                check_one(await peer.ask("POST", "/v2/models/floats/infer", body, headers), (size, length))
        await check_good(peer)

    play(repository, scenario)


def test_a_good_body_cut_at_every_byte(repository: Path, caplog: pytest.LogCaptureFixture) -> None:
    strings = encode_bytes(np.array([b"ab", b""], object))
    inputs = [
        {"name": "INPUT0", "shape": [1, 2], "datatype": "INT32", "parameters": {"binary_data_size": 8}},
        {"name": "INPUT1", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(strings)}},
    ]
    text = json.dumps({"id": "7", "inputs": inputs}, separators=(",", ":")).encode()
    body = text + bytes(8) + strings

    async def scenario(house: House, peer: Peer) -> None:
        caplog.clear()
        headers = {"Inference-Header-Content-Length": len(text)}
        assert (await peer.ask("POST", "/v2/models/pair/infer", body, headers)).status == 200
        for cut in range(len(body)):
            for length in (len(text), min(cut, len(text)), None):
                headers = {} if length is None else {"Inference-Header-Content-Length": length}
                answer = await peer.ask("POST", "/v2/models/pair/infer", body[:cut], headers)
                assert answer.status == 400, (cut, length)
        no_errors(caplog)

    play(repository, scenario)


def test_failing_runs_beside_good_ones(repository: Path) -> None:
    """Many connections; an index outside the table makes a run fail, and only for the one who asked for it."""
    dice = random.Random(5)

    async def caller(house: House) -> None:
        with house.peer() as peer:
            for _ in range(20):
                value = dice.choice([0, 1, 2, 3, 99])
                given = {"name": "index", "shape": [1, 1], "datatype": "INT64", "data": [value]}
                answer = await peer.infer("look_up", {"inputs": [given]})
                if value == 99:
                    assert answer.status == 500
                    assert "out of data bounds" in answer.error
                else:
                    assert answer.outputs()["value"].tolist() == [[10.0 + value]]

    async def scenario(house: House, peer: Peer) -> None:
        await asyncio.gather(*(caller(house) for _ in range(20)))

    play(repository, scenario)
