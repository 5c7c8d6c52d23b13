"""Servers whose ports are served by several processes, and what tests do with them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

from naiad.testing import RunningServer, read_response, request_bytes, serving, wait_until
from support import triton_inputs

FRONTS = ("--frontend-processes", 2)
LIBRARIES = {"http": tritonclient.http, "grpc": tritonclient.grpc}


def input_of(library: Any, name: str, values: np.ndarray) -> Any:
    return triton_inputs.input_of(library, name, values, np_to_triton_dtype(values.dtype))


@contextmanager
def served(models: Path, log: Path, *options: object) -> Iterator[RunningServer]:
    with serving(log, "--model-repository", models, *FRONTS, *options) as running:
        yield running
        assert "could not be handled" not in running.log
        assert "Traceback" not in running.log


def processes(server: RunningServer) -> dict[str, list[psutil.Process]]:
    """The processes of a server: those that listen are front ends, the one that has the metrics port the engine."""
    found: dict[str, list[psutil.Process]] = {"front": [], "engine": [], "spare": []}
    for child in psutil.Process(server.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            ports = {c.laddr.port for c in child.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
            kind = "front" if server.http in ports else "engine" if server.metrics in ports else "spare"
            found[kind].append(child)
    return found


def front_of(server: RunningServer, local_port: int) -> psutil.Process:
    """The front-end process that has the other end of a connection."""
    for front in processes(server)["front"]:
        if any(c.raddr and c.raddr.port == local_port for c in front.net_connections("tcp")):
            return front
    raise LookupError(f"no front end has the connection from port {local_port}")


@contextmanager
def one_connection_each(server: RunningServer) -> Iterator[list[socket.socket]]:
    """A connection to each of the front ends."""
    with ExitStack() as stack:
        found: dict[int, socket.socket] = {}
        for _ in range(100):
            connection = stack.enter_context(server.connect())
            connection.sendall(request_bytes("GET", "/v2/health/live", None))
            assert read_response(connection, "GET").status == 200
            found.setdefault(front_of(server, connection.getsockname()[1]).pid, connection)
            if len(found) == 2:
                break
        assert len(found) == 2
        yield list(found.values())


def ask(connection: Any, path: str, value: object) -> Any:
    connection.sendall(request_bytes("POST", path, json.dumps(value).encode()))
    return read_response(connection, "POST")


@contextmanager
def client_of(server: RunningServer, protocol: str) -> Iterator[Any]:
    url = server.url if protocol == "http" else server.grpc_url
    client = LIBRARIES[protocol].InferenceServerClient(url)
    try:
        yield client
    finally:
        client.close()


def front_requests(server: RunningServer) -> dict[str, int]:
    lines = [x for x in server.metrics_page().splitlines() if x.startswith("naiad_frontend_requests{")]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}


def replicas(server: RunningServer) -> dict[str, int]:
    """How many front ends run each model; nothing while the engine is being started again."""
    try:
        page = server.metrics_page()
    except OSError:
        return {}
    lines = [x for x in page.splitlines() if x.startswith("naiad_replicas{")]
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines}


def await_replicas(server: RunningServer, wanted: dict[str, int], within_s: float = 20) -> None:
    wait_until(lambda: wanted.items() <= replicas(server).items(), within_s, f"replicas: {wanted}")
