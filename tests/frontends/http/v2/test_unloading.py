"""What the front ends remember of a model goes when the model goes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from naiad.engine.engine import Engine
from naiad.execution.model.loaded_model import LoadedModel
from naiad.frontends.http.v2.router import Router
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.catalog import Catalog
from support.event_loops import run, until
from support.grpc_infer import Services, floats, write_models
from support.http_application import House, Peer

IN_JSON = b'{"inputs":[{"name":"INPUT0","shape":[1,2],"datatype":"FP32","data":[1,2]}]}'
IN_BINARY = IN_JSON.replace(b'"data":[1,2]', b'"parameters":{"binary_data_size":8}')


async def ask_http(services: Services, peer: Peer) -> None:
    row = np.ones((1, 2), np.float32).tobytes()
    for _ in range(3):
        assert (await peer.infer("floats", IN_BINARY, row)).status == 200
        assert (await peer.infer("floats", IN_JSON)).status == 200


async def ask_generate(services: Services, peer: Peer) -> None:
    for _ in range(3):
        answer = await peer.ask("POST", "/v2/models/floats/generate", b'{"INPUT0":[1,2]}')
        assert answer.json["OUTPUT0"] == [1, 2]


async def ask_grpc(services: Services, peer: Peer) -> None:
    for number in range(3):
        await services.answer(floats(1, 2, id=str(number)))


@pytest.mark.parametrize("ask", [ask_http, ask_generate, ask_grpc])
def test_nothing_holds_a_model_after_its_end(tmp_path: Path, ask: Callable[[Services, Peer], Awaitable[None]]) -> None:
    write_models(tmp_path)

    async def test() -> None:
        settings = LoadSettings(lambda backend: {}, cores=1)
        manager = ModelManager(settings, 2, Catalog((tmp_path,)), is_explicit=True)
        engine = Engine(manager, "test", True)
        house = House(engine, manager, Router(engine))
        services = Services(house)
        with house.peer() as peer:
            for _ in range(2):
                await manager.load_model("floats")
                model: weakref.ref[LoadedModel] = weakref.ref(engine.find("floats", None))
                await ask(services, peer)
                await manager.unload_model("floats")
                await until(lambda: manager.entries["floats"].unloading == 0)
                gc.collect()
                assert model() is None
        assert await manager.unload_all(20)

    run(test())
