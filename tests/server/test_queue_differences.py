"""Rows of "Differences on purpose" about requests that wait, and about connections that wait, on a real server."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

from naiad.testing import RESPONSE_S, RunningServer, request_bytes, serving
from support.grpc_peers import calling
from support.served_models import identity, numbers, write_model

DELAY_MS = 400
LEVELS = "dynamic_batching { priority_levels: 2 default_priority_level: 2 }"
PATIENCE = 'parameters { key: "priority-max-wait-microseconds" value { string_value: "1000" } }'
OVERRIDABLE = "dynamic_batching { default_queue_policy { timeout_action: REJECT allow_timeout_override: true } }"
FIXED = "dynamic_batching { default_queue_policy { timeout_action: REJECT } }"
MODELS = {"strict": LEVELS, "patient": LEVELS + PATIENCE, "timed": OVERRIDABLE, "fixed": FIXED}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("queues")
    for name, extra in MODELS.items():
        write_model(folder / "models", name, identity(max_batch_size=1, delay_ms=DELAY_MS, extra=extra))
    with serving(folder / "log", folder / "models") as running:
        yield running
        assert "Traceback" not in running.log


def ask(client: Any, model: str, answer: Any, **more: Any) -> None:
    given = triton.InferInput("INPUT0", [1, 1], "INT32")
    given.set_data_from_numpy(np.ones((1, 1), np.int32))
    client.async_infer(model, [given], lambda result, error: answer(error), **more)


@pytest.mark.parametrize(
    ("model", "wanted"),
    [("strict", ["first", "high", "high", "low"]), ("patient", ["first", "low", "high", "high"])],
)
def test_one_of_low_priority_that_waited_long_enough(server: RunningServer, model: str, wanted: list[str]) -> None:
    """The parameter says after how long it is served before those of high priority."""
    order: queue.Queue[tuple[str, Any]] = queue.Queue()

    def put(name: str, error: Any) -> None:
        order.put((name, error))

    with calling(server.grpc_url) as client:
        for waiting, (name, priority) in enumerate((("first", 2), ("low", 2), ("high", 1), ("high", 1))):
            ask(client, model, partial(put, name), priority=priority)
            if waiting:
                server.wait_pending(model, waiting)
            else:
                # It runs: the next one waits, and is the only one that does.
                assert client.is_server_live()
        found = [order.get(timeout=RESPONSE_S) for _ in wanted]
    assert [error for _, error in found] == [None] * 4
    assert [name for name, _ in found] == wanted


@pytest.mark.slow
def test_a_request_may_bring_a_timeout_where_there_is_none(server: RunningServer) -> None:
    """And is told at that time, while the model is busy; where it may not, its timeout says nothing."""
    for model, is_refused in (("timed", True), ("fixed", False)):
        errors: queue.Queue[Any] = queue.Queue()
        running: queue.Queue[Any] = queue.Queue()
        with calling(server.grpc_url) as client:
            ask(client, model, running.put)
            assert client.is_server_live()
            ask(client, model, errors.put, timeout=20_000)
            error = errors.get(timeout=RESPONSE_S)
            assert (error is not None) == is_refused, model
            if is_refused:
                assert (error.status(), running.empty()) == ("StatusCode.UNAVAILABLE", True)
                assert "Request timeout expired" in error.message()
            assert running.get(timeout=RESPONSE_S) is None
    body = {**numbers([1], [1, 1]), "parameters": {"timeout": 20_000}}
    with server.connect() as peer:
        peer.sendall(request_bytes("POST", "/v2/models/timed/infer", json.dumps(numbers([1], [1, 1])).encode()))
        assert server.get("/v2/health/live").status == 200
        answer = server.infer("timed", body)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


@pytest.mark.slow
def test_a_connection_that_does_nothing_is_closed(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "ints", identity(max_batch_size=1))
    with serving(tmp_path / "log", tmp_path / "models", "--http-idle-timeout-secs=1") as server:
        with server.connect() as peer:
            begun = time.monotonic()
            assert peer.recv(1) == b""
            assert time.monotonic() - begun > 0.5
        assert server.infer("ints", numbers([1], [1, 1])).status == 200
