"""Settings of a running server as they were read and changed on the reference server, and what it answered.

The cases are sent in their order, to one server of their own: each finds what those before it have set. A case
without ``expect`` is sent for its effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from conformance import replay_grpc, replay_http
from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model
from support.served_transports import TRANSPORTS


def start(tmp_path_factory: pytest.TempPathFactory, *options: object) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("settings")
    write_model(folder / "models", "simple", identity())
    with serving(folder / "log", folder / "models", *options) as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    yield from start(tmp_path_factory)


@pytest.fixture(scope="module", params=TRANSPORTS)
def grpc_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    yield from start(tmp_path_factory, "--grpc-transport", request.param)


def test_http_answers_are_the_recorded_ones(server: RunningServer) -> None:
    for case in replay_http.load("settings"):
        answer = replay_http.send(server, case)
        assert list(answer.headers) == ["content-type", "content-length"], case["name"]
        if "expect" in case:
            replay_http.assert_answer(answer, case["expect"])


@pytest.mark.slow
def test_grpc_answers_are_the_recorded_ones(grpc_server: RunningServer) -> None:
    with grpc.insecure_channel(grpc_server.grpc_url) as channel:
        for case in replay_grpc.load("settings"):
            found = replay_grpc.answer(channel, case)
            assert found == case.get("expect", found), case["name"]
