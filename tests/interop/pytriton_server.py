"""In PyTriton's tests of clients, a real server in place of mocks that say that one is ready.

A copy of this file lies beside those tests and is not imported here. They ask for a server and a model by the
functions below, whose names and arguments are theirs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from naiad.pytriton.decorators import batch
from naiad.pytriton.model_config import ModelConfig, Tensor
from naiad.pytriton.model_config.triton_model_config import TritonModelConfig
from naiad.pytriton.proxy.types import Request
from naiad.pytriton.triton import Triton, TritonConfig

Array = np.ndarray[Any, Any]

_CONFIG = TritonConfig(
    http_address="127.0.0.1",
    http_port=int(os.environ.get("HTTP_PORT_OF_TESTS", "0")),
    grpc_address="127.0.0.1",
    grpc_port=int(os.environ.get("GRPC_PORT_OF_TESTS", "0")),
    allow_metrics=False,
)
_running: list[Triton] = []


def start() -> Triton:
    """The server of the present test."""
    if not _running:
        triton = Triton(config=_CONFIG)
        triton.run()
        _running.append(triton)
    return _running[0]


def stop() -> None:
    """End the server of a test, if it has one."""
    while _running:
        _running.pop().stop()


@batch
def _batches(a: Array, b: Array) -> dict[str, Array]:
    return {"add": a + b, "sub": a - b}


def _samples(requests: Sequence[Request]) -> list[dict[str, Array]]:
    return [{"add": r["a"] + r["b"], "sub": r["a"] - r["b"]} for r in requests]


def _bind(wanted: TritonModelConfig) -> None:
    def tensors(specs: Any) -> list[Tensor]:
        return [Tensor(name=spec.name, dtype=spec.dtype, shape=spec.shape) for spec in specs]

    start().bind(
        wanted.model_name,
        _batches if wanted.batching else _samples,
        tensors(wanted.inputs),
        tensors(wanted.outputs),
        model_version=wanted.model_version,
        config=ModelConfig(batching=wanted.batching, max_batch_size=wanted.max_batch_size, decoupled=wanted.decoupled),
    )


# ---- the names of their helpers


def patch_client__server_up_and_ready(
    mocker: object, client: object, ready_server: bool = True, live_server: bool = True
) -> None:
    """A server; none where it is not to be ready."""
    if ready_server and live_server:
        start()


def patch_http_client__model_up_and_ready(
    mocker: object, model_config: TritonModelConfig, client: object = None, ready: bool = True
) -> None:
    """A server with the model; without it where it is not to be ready."""
    start()
    if ready:
        _bind(model_config)


def patch_grpc_client__server_up_and_ready(mocker: object) -> None:
    """A server."""
    start()


patch_grpc_client__model_up_and_ready = patch_http_client__model_up_and_ready
patch_http_client__server_up_and_ready = patch_grpc_client__server_up_and_ready
