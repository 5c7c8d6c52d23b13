"""Responses of a decoupled model over both transports, to a real client: as they come, given up, and not taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from frontends.grpc.v2.test_decoupled import asking, end, response, value
from naiad.frontends.grpc.v2.services import make_methods
from naiad.wire.grpc.paths import INFERENCE, path
from support.event_loops import WAIT_S, run, until
from support.grpc_infer import Request, Streamed, write_models
from support.grpc_transports import TRANSPORTS, carried
from support.http_application import serving
from support.played_model import PlayedModel

pytestmark = pytest.mark.parametrize("kind", TRANSPORTS)
FLOATS = 1 << 16


def played(
    tmp_path: Path, kind: str, scenario: Callable[[Any, PlayedModel], Coroutine[Any, Any, None]], max_waiting: int = 8
) -> None:
    """Run a scenario with an open call to a server whose model ``floats`` is decoupled."""

    async def test() -> None:
        write_models(tmp_path)
        async with serving(tmp_path) as house:
            model = PlayedModel(house, "floats", decoupled=True)
            async with carried(kind, make_methods(house.engine, max_waiting)) as transport:
                options = (("grpc.max_receive_message_length", -1), ("grpc.http2.lookahead_bytes", 1 << 16))
                async with grpc.aio.insecure_channel(f"127.0.0.1:{transport.port}", options=options) as channel:
                    call = channel.stream_stream(
                        path(INFERENCE, "ModelStreamInfer"), Request.SerializeToString, Streamed.FromString
                    )
                    await scenario(call(), model)

    run(test())


async def read(call: Any) -> Any:
    return await asyncio.wait_for(call.read(), WAIT_S)


def test_each_response_comes_when_it_is_made(tmp_path: Path, kind: str) -> None:
    async def scenario(call: Any, model: PlayedModel) -> None:
        await call.write(asking(0, id="r"))
        await until(lambda: model.requests)
        for n in range(3):
            model.last.respond_part(value(n), None, False)
            assert await read(call) == response(n, id="r")
        model.last.respond_part(None, None, True)
        assert await read(call) == end("r")
        await call.done_writing()
        assert await read(call) is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK

    played(tmp_path, kind, scenario)


def test_a_caller_who_cancels_is_known_to_the_model(tmp_path: Path, kind: str) -> None:
    async def scenario(call: Any, model: PlayedModel) -> None:
        await call.write(asking(0))
        await call.write(asking(1))
        await until(lambda: len(model.requests) == 2)
        model.last.respond_part(value(1), None, False)
        await read(call)
        call.cancel()
        await until(lambda: len(model.cancelled) == 2)
        assert set(model.cancelled) == set(model.requests)

    played(tmp_path, kind, scenario)


def test_a_caller_who_takes_nothing_stops_the_model_in_the_end(tmp_path: Path, kind: str) -> None:
    async def scenario(call: Any, model: PlayedModel) -> None:
        await call.write(asking(0, id="much"))
        await until(lambda: model.requests)
        big = {"OUTPUT0": np.zeros((1, FLOATS), np.float32)}
        sent = 0
        async with asyncio.timeout(WAIT_S):
            while not model.cancelled:
                model.last.respond_part(big, None, False)
                sent += 1
                await asyncio.sleep(0)
        assert model.cancelled == model.requests
        # Long before, the model was asked to stop; this one does not.
        assert list(model.held) == model.requests
        for _ in range(sent - 1):
            assert (await read(call)).infer_response.outputs[0].shape == [1, FLOATS]
        last = await read(call)
        assert "faster than they are taken" in last.error_message
        assert last.infer_response.id == "much"
        # The call itself goes on.
        await call.write(asking(1, id="more"))
        await until(lambda: len(model.requests) == 2)
        model.last.respond_part(value(1), None, True)
        assert await read(call) == response(1, id="more", final=True)
        await call.done_writing()
        assert await read(call) is grpc.aio.EOF

    played(tmp_path, kind, scenario)
