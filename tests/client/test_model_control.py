"""Loads with files, and routes, by both clients against a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from naiad.client import AsyncClient, Client, ResponseError
from naiad.client.mlflow import Deployment, find_deployed, version_of
from naiad.errors import InvalidArgumentError
from naiad.inprocess.server import Server

FIELD = {"data_type": "TYPE_FP32", "dims": [-1]}
CONFIG = json.dumps(
    {
        "backend": "identity",
        "version_policy": {"all": {}},
        "input": [{"name": "x", **FIELD}],
        "output": [{"name": "y", **FIELD}],
    }
)
FILES = {"1/about.txt": b"one", "2/about.txt": bytes(range(256))}
X = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    ports = {"http_address": "127.0.0.1", "http_port": 0, "grpc_address": "127.0.0.1", "grpc_port": 0}
    folder = tmp_path_factory.mktemp("models")
    with Server(model_repository=str(folder), model_control_mode="explicit", **ports) as made:
        yield made


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, server: Server) -> str:
    return server.http_url if request.param == "http" else f"grpc://{server.grpc_url}"


def test_a_load_with_files(url: str) -> None:
    with Client(url) as client:
        client.load("filed", CONFIG, FILES)
        assert client.infer("filed", {"x": X}).version == "2"
        with pytest.raises(ResponseError, match="Load parameter 'config' must be specified"):
            client.load("filed", files=FILES)
        client.unload("filed")


def test_routes(server: Server) -> None:
    with Client(server.http_url) as client:
        client.load("routed", CONFIG, FILES)
        assert client.change_routes("routed", split={"1": 100}, aliases={"stable": "1"})["split"] == {"1": 100}
        assert client.infer("routed", {"x": X}).version == "1"
        assert client.promote("routed", 2, "stable")["aliases"] == {"stable": "2"}
        assert client.infer("routed", {"x": X}, version="stable").version == "2"
        assert client.rollback("routed")["split"] == client.routes("routed")["split"] == {"1": 100}
        with pytest.raises(ResponseError, match="7"):
            client.promote("routed", 7)
        client.unload("routed")


def test_routes_of_coroutines(server: Server) -> None:
    async def run() -> Any:
        async with AsyncClient(server.http_url) as client:
            await client.load("later", CONFIG, FILES)
            await client.change_routes("later", split={"1": 1})
            found = await client.infer("later", {"x": X})
            await client.promote("later", 2)
            back = await client.rollback("later")
            await client.unload("later")
            return found.version, back["split"]

    assert asyncio.run(run()) == ("1", {"1": 1})


def test_routes_are_http(server: Server) -> None:
    with (
        Client(f"grpc://{server.grpc_url}") as client,
        pytest.raises(InvalidArgumentError, match="use the server's HTTP"),
    ):
        client.routes("routed")


def test_what_comes_from_elsewhere_is_no_deployment(server: Server) -> None:
    with Client(server.http_url) as client:
        client.load("plain", CONFIG, FILES)
        assert find_deployed(client, "plain") is None
        assert find_deployed(client, "nobody") is None
        client.unload("plain")


def test_the_configuration_of_a_deployment() -> None:
    found = Deployment("m", ("models:/a/3", "models:/a/12"), "onnx", {"max_batch_size": 4}).as_config()
    agents = [{"name": "mlflow", "parameters": {"model": "models:/a/3,models:/a/12", "flavor": "onnx"}}]
    assert found["model_repository_agents"] == {"agents": agents}
    assert (found["name"], found["max_batch_size"]) == ("m", 4)
    assert [version_of(uri) for uri in ("models:/a/12", "models:/a@x", "runs:/r/a")] == [12, 1, 1]
