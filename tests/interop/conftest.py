"""One server per transport for the whole suite; peers come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.calls import channel, stub
from interop.models import SLOW_MODELS, write_models
from naiad.testing import RunningServer, serving
from support.served_transports import TRANSPORTS


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the suite."""
    folder = tmp_path_factory.mktemp("interop") / "models"
    write_models(folder)
    return folder


@pytest.fixture(scope="session", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """What carries gRPC."""
    return str(request.param)


@pytest.fixture(scope="session")
def server(transport: str, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The server that the tests share. It must not have logged a fault of its own when all are done."""
    log = tmp_path_factory.mktemp(transport) / "log"
    with serving(log, models, "--grpc-transport", transport, "--id", "nymph") as running:
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture
def service(server: RunningServer) -> Iterator[Any]:
    """The inference service by grpcio's blocking client, on a connection of its own."""
    with channel(server) as opened:
        yield stub(opened)


@pytest.fixture(scope="session")
def compressing(transport: str, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that compresses its answers to inference requests."""
    log = tmp_path_factory.mktemp(transport) / "log"
    level = ("--grpc-infer-response-compression-level", "medium")
    with serving(log, models, "--grpc-transport", transport, *level) as running:
        yield running
    assert "Traceback" not in running.log, running.log


@pytest.fixture(scope="session")
def slow_models(server: RunningServer) -> Iterator[str]:
    """The slow models of the server that no test has used."""
    return iter(SLOW_MODELS)


@pytest.fixture
def slow(slow_models: Iterator[str]) -> str:
    """A model that takes ``DELAY_MS`` for a request, one at a time, and that nobody else uses."""
    return next(slow_models)
