"""A model is loaded anew under load, with broken versions in between: no request fails, and the reason is seen."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, serving
from support.served_models import SUM_AND_DIFFERENCE, tensor, write_model

ROUNDS = 12
CONFIG = f"""
    backend: "onnxruntime" max_batch_size: 8 dynamic_batching {{ }}
    input [ {tensor("INPUT0", "TYPE_INT32", "16")}, {tensor("INPUT1", "TYPE_INT32", "16")} ]
    output [ {tensor("OUTPUT0", "TYPE_INT32", "16")}, {tensor("OUTPUT1", "TYPE_INT32", "16")} ]
    model_warmup {{ name: "w" batch_size: 8
        inputs {{ key: "INPUT0" value {{ data_type: TYPE_INT32 dims: [ 16 ] zero_data: true }} }}
        inputs {{ key: "INPUT1" value {{ data_type: TYPE_INT32 dims: [ 16 ] random_data: true }} }} }}
"""
A, B = np.full((1, 16), 7, np.int32), np.full((1, 16), 5, np.int32)


def groups(count: int) -> str:
    return f"instance_group {{ count: {count} kind: KIND_CPU }}\n"


def call_until(stop: threading.Event, library: object, url: str) -> int:
    """Ask until ``stop`` is set; raises what fails."""
    made = library.InferInput  # type: ignore[attr-defined]
    inputs = []
    for name, array in (("INPUT0", A), ("INPUT1", B)):
        inputs.append(made(name, array.shape, "INT32"))
        inputs[-1].set_data_from_numpy(array)
    count = 0
    with library.InferenceServerClient(url) as client:  # type: ignore[attr-defined]
        while not stop.is_set():
            result = client.infer("m", inputs)
            assert np.array_equal(result.as_numpy("OUTPUT0"), A + B)
            count += 1
    return count


def load(server: RunningServer) -> int:
    return server.post("/v2/repository/models/m/load", {}).status


def reason(server: RunningServer) -> str:
    """What the index says of the version that serves."""
    rows = server.index()
    return str(next(row.get("reason", "") for row in rows if row["state"] == "READY"))


@pytest.mark.slow
def test_no_request_fails(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "models", "m", CONFIG + groups(1), graph=SUM_AND_DIFFERENCE)
    config, network = folder / "config.pbtxt", folder / "1" / "model.onnx"
    whole = network.read_bytes()
    breaks: tuple[Callable[[], object], ...] = (
        lambda: network.write_bytes(whole[:20]),
        lambda: config.write_text("nonsense {"),
        lambda: config.write_text(CONFIG.replace("dims: [ 16 ] random", "dims: [ -1 ] random") + groups(1)),
    )
    stop = threading.Event()
    options = ("--model-control-mode=explicit", "--load-model=m")
    with serving(tmp_path / "log", tmp_path / "models", *options) as server, ThreadPoolExecutor(4) as callers:
        asked = [
            callers.submit(call_until, stop, library, url)
            for library, url in ((tritonclient.http, server.url), (tritonclient.grpc, server.grpc_url))
            for _ in range(2)
        ]
        try:
            for number in range(ROUNDS):
                breaks[number % len(breaks)]()
                assert load(server) != 200
                assert reason(server).startswith("serves as before, it could not be loaded again: ")
                network.write_bytes(whole)
                os.utime(network, ns=(0, number))
                config.write_text(CONFIG + groups(1))
                assert load(server) == 200
                assert reason(server) == ""
                # And in place.
                config.write_text(CONFIG + groups(1 + number % 3))
                assert load(server) == 200
        finally:
            stop.set()
        assert min(one.result(20) for one in asked) > ROUNDS
