"""Replies to callers that take nothing or too little, by a model whose part the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from naiad.frontends.openai.application import OpenAiApplication
from naiad.frontends.openai.inference import OpenAiInference
from naiad.frontends.openai.models import OpenAiModels
from naiad.frontends.openai.replies import MAX_TEXT
from naiad.frontends.openai.settings import OpenAiSettings
from naiad.repository.catalog import open_catalog
from naiad.request import Outputs
from naiad.scheduling.admission import RequestBudget
from naiad.testing import write_model
from support.http_application import House, Peer, identity_config, play
from support.played_model import PlayedModel

SETTINGS = OpenAiSettings(None, "", 16, "", None, 1 << 17, False)
MIB = 1 << 20


def text(value: bytes) -> Outputs:
    return Outputs({"text_output": np.array([value], np.object_)})


def talk(repository: Path, stream: bool, scenario: Callable[[Peer, PlayedModel], Awaitable[None]]) -> None:
    """Ask the model for a text over the port, and play ``scenario`` with the caller and the model."""
    write_model(repository, "talk", identity_config(("0", "TYPE_STRING", "[ 1 ]")))

    async def run(house: House, _: Peer) -> None:
        files, budget = open_catalog((), (), "", 0, False), RequestBudget()
        inference = OpenAiInference(house.engine, files, SETTINGS, budget)
        models = OpenAiModels(house.engine, files, SETTINGS, budget)
        played = PlayedModel(house, "talk", decoupled=True)
        spec = played.model.spec
        played.model.spec = replace(
            spec,
            inputs={"text_input": replace(spec.inputs["INPUT0"], name="text_input")},
            outputs={"text_output": replace(spec.outputs["OUTPUT0"], name="text_output")},
        )
        with ExitStack() as stack:
            peer = stack.enter_context(house.peer(OpenAiApplication(house.engine, inference, models, None)))
            stack.callback(files.close)
            body = json.dumps({"model": "talk", "prompt": "hello", "stream": stream}).encode()
            peer.receive(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await scenario(peer, played)

    play(repository, run)


def written(peer: Peer) -> Any:
    """The body of the only response, as JSON."""
    return json.loads(bytes(peer.transport.written).partition(b"\r\n\r\n")[2])


def test_the_model_pauses_while_its_caller_takes_nothing(tmp_path: Path) -> None:
    async def scenario(peer: Peer, played: PlayedModel) -> None:
        peer.transport.get_write_buffer_size = lambda: len(peer.transport.written)  # type: ignore[method-assign]
        played.last.respond_part(text(b"a"), None, False)
        assert not played.held
        played.last.respond_part(text(b"x" * (2 * MIB)), None, False)
        assert list(played.held) == [played.last]
        peer.transport.get_write_buffer_size = lambda: 0  # type: ignore[method-assign]
        peer.connection.resume_writing()
        assert not played.held

    talk(tmp_path, True, scenario)


def test_what_a_caller_does_not_take_is_bounded(tmp_path: Path) -> None:
    async def scenario(peer: Peer, played: PlayedModel) -> None:
        peer.transport.get_write_buffer_size = lambda: len(peer.transport.written)  # type: ignore[method-assign]
        sent = 0
        while not played.cancelled:
            sent += 1
            assert sent < 100
            played.last.respond_part(text(b"x" * MIB), None, False)
        assert 16 <= sent <= 20
        # Large parts wait for a turn of the loop.
        await asyncio.sleep(0)
        assert b"come faster than they are taken" in peer.transport.written
        size = len(peer.transport.written)
        played.last.respond_part(text(b"too late"), None, True)
        assert len(peer.transport.written) == size

    talk(tmp_path, True, scenario)


def test_a_whole_text_is_bounded(tmp_path: Path) -> None:
    async def scenario(peer: Peer, played: PlayedModel) -> None:
        part = text(b"x" * (MAX_TEXT // 4))
        for _ in range(4):
            played.last.respond_part(part, None, False)
        assert not played.cancelled
        played.last.respond_part(text(b"x"), None, False)
        assert played.cancelled == [played.last]
        assert "more than 67108864 characters" in written(peer)["error"]["message"]

    talk(tmp_path, False, scenario)


def test_a_model_without_a_response(tmp_path: Path) -> None:
    async def scenario(peer: Peer, played: PlayedModel) -> None:
        played.last.respond_part(None, None, True)
        assert "Unexpected number of responses: 0" in written(peer)["error"]["message"]

    talk(tmp_path, False, scenario)


def test_outputs_that_are_no_single_text(tmp_path: Path) -> None:
    async def scenario(peer: Peer, played: PlayedModel) -> None:
        played.last.respond_part(Outputs({"text_output": np.array([b"a", b"b"], np.object_)}), None, True)
        assert "Expected to find 1 string in the output, found 2" in written(peer)["error"]["message"]
        assert not played.cancelled

    talk(tmp_path, False, scenario)
