"""The whole application behind HTTP, with loaded models, asked through a connection whose peer is in memory."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from naiad.engine.engine import Engine
from naiad.errors import ModelLoadError
from naiad.frontends.http.server.connection import HttpConnection
from naiad.frontends.http.server.exchange import Application
from naiad.frontends.http.server.state import HttpLimits, HttpService
from naiad.frontends.http.v2.router import Router
from naiad.frontends.inference.offload import use_one_thread
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.local.discover import discover
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE
from naiad.testing import write_model
from support import event_loops
from support.event_loops import WAIT_S

JSON = "application/json"
TEXT = "text/plain"
BINARY = "application/octet-stream"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.arrived = asyncio.Event()
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.arrived.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.ended = True
        self.arrived.set()

    def abort(self) -> None:
        self.close()

    def write_eof(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.ended

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def type(self) -> str:
        return self.headers["Content-Type"]

    @property
    def json_length(self) -> int:
        return int(self.headers.get("Inference-Header-Content-Length", len(self.body)))

    @property
    def json(self) -> Any:
        return json.loads(self.body[: self.json_length])

    @property
    def error(self) -> str:
        found = self.json
        assert list(found) == ["error"]
        return str(found["error"])

    def outputs(self) -> dict[str, np.ndarray]:
        """The tensors, wherever they are; every byte of the body must belong to something."""
        rest = self.body[self.json_length :]
        found = {}
        for output in self.json["outputs"]:
            dtype = BY_WIRE[output["datatype"]]
            if "parameters" in output:
                size = output["parameters"]["binary_data_size"]
                raw, rest = rest[:size], rest[size:]
                elements = int(np.prod(output["shape"]))
                flat = decode_bytes(raw, elements, "") if dtype.is_bytes else np.frombuffer(raw, dtype.numpy)
            elif isinstance(output["data"], dict):
                raw, elements = base64.b64decode(output["data"]["b64"], validate=True), int(np.prod(output["shape"]))
                flat = decode_bytes(raw, elements, "") if dtype.is_bytes else np.frombuffer(raw, dtype.numpy)
            else:
                values = [v.encode() for v in output["data"]] if dtype.is_bytes else output["data"]
                flat = np.array(values, dtype.numpy)
            found[output["name"]] = flat.reshape(output["shape"])
        assert rest == b""
        return found


class Peer:
    """One connection; requests go one after another."""

    def __init__(self, application: Application) -> None:
        self.transport = Transport()
        self._service = HttpService(application, HttpLimits())
        self.connection = HttpConnection(self._service)
        self.connection.connection_made(self.transport)

    async def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, object] = {}) -> Answer:
        """Send a request and wait for its answer, of which there must be exactly one."""
        lines = [f"{method} {target} HTTP/1.1", "Host: a", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.receive("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return await self.answer()

    async def answer(self) -> Answer:
        """Wait for the answer to what was sent, of which there must be exactly one."""
        written = self.transport.written
        async with asyncio.timeout(WAIT_S):
            while (answer := _answer(bytes(written))) is None:
                self.transport.arrived.clear()
                await self.transport.arrived.wait()
        written.clear()
        return answer

    async def infer(self, model: str, request: Any, tensors: bytes | None = None, **more: Any) -> Answer:
        """Ask for an inference; with ``tensors`` behind the JSON part, or the JSON part alone."""
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = dict(more.pop("headers", {}))
        if tensors is not None:
            headers["Inference-Header-Content-Length"] = len(text)
        return await self.ask("POST", f"/v2/models/{model}/infer", text + (tensors or b""), headers)

    def receive(self, data: bytes) -> None:
        """Hand bytes to the connection, which must have nothing to say yet."""
        assert not self.transport.written, "an answer that nobody asked for"
        while data:
            target = memoryview(self.connection.get_buffer(-1))
            taken = min(len(target), len(data))
            target[:taken] = data[:taken]
            target.release()
            self.connection.buffer_updated(taken)
            data = data[taken:]

    def close(self) -> None:
        """The peer goes away."""
        self.connection.connection_lost(None)


def _answer(raw: bytes) -> Answer | None:
    """The one answer in ``raw``; None while it is not complete."""
    head, found, body = raw.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert len(headers) == len(lines)
    length = int(headers["Content-Length"])
    if len(body) < length:
        return None
    assert len(body) == length, f"more than one answer: {raw!r}"
    return Answer(int(first.split()[1]), headers, body)


@dataclass
class House:
    """A server without sockets."""

    engine: Engine
    manager: ModelManager
    router: Router

    @contextlib.contextmanager
    def peer(self, application: Application | None = None) -> Iterator[Peer]:
        """A connection to the inference port, or to another application."""
        found = Peer(application or self.router)
        try:
            yield found
        finally:
            found.close()


def identity_config(*tensors: tuple[str, str, str], more: str = "") -> str:
    """An identity model with inputs ``INPUT0``, ... and outputs ``OUTPUT0``, ... of (name, type, dims)."""
    inputs = ", ".join(f'{{ name: "INPUT{n}" data_type: {t} dims: {d} }}' for n, t, d in tensors)
    outputs = ", ".join(f'{{ name: "OUTPUT{n}" data_type: {t} dims: {d} }}' for n, t, d in tensors)
    return f'backend: "identity" {more} input [ {inputs} ] output [ {outputs} ]'


def write_look_up(repository: Path, more: str = "") -> None:
    """An ONNX model ``look_up``: a row of a table of four, and any other index makes the run fail."""
    folder = write_model(repository, "look_up", f"max_batch_size: 8 dynamic_batching {{ }} {more}")
    graph = """<ir_version: 8, opset_import: ["": 17]>
        look_up (int64[N, 1] index) => (float[N, 1] value) {
          table = Constant <value_floats = [10.0, 11.0, 12.0, 13.0]> ()
          value = Gather (table, index)
        }"""
    onnx.save(onnx.parser.parse_model(graph), folder / "1" / "model.onnx")


@contextlib.asynccontextmanager
async def serving(
    repository: Path, strict_readiness: bool = True, load: bool = True, settings: LoadSettings | None = None
) -> AsyncIterator[House]:
    """All models of a repository, loaded; in the end they must unload in time."""
    # As the server does on its loop.
    use_one_thread(asyncio.get_running_loop())
    manager = ModelManager(settings or LoadSettings(lambda backend: {}, cores=1), 2)
    engine = Engine(manager, "naiad-test", strict_readiness)
    if load:
        await load_repository(manager, repository)
    router = Router(engine)
    try:
        yield House(engine, manager, router)
    finally:
        router.close()
        assert await manager.unload_all(WAIT_S)


async def load_repository(manager: ModelManager, repository: Path) -> None:
    """Find and load what there is, as the server does."""
    listing = discover([repository], [])
    for name, reason in listing.unavailable.items():
        manager.refuse(name, ModelLoadError(reason))
    await manager.load_all(listing.models.values())


Scenario = Callable[[House, Peer], Coroutine[Any, Any, None]]


def play(repository: Path, scenario: Scenario) -> None:
    """Load a repository, run a scenario with one connection, and end everything."""

    async def test(house: House) -> None:
        with house.peer() as peer:
            await scenario(house, peer)

    event_loops.play(serving(repository), test)
