"""A real child process, and a server for it that a test plays: every frame is written and read by hand."""

from __future__ import annotations

import array
import contextlib
import json
import mmap
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_WIRE
from naiad.worker.ipc import frames as p

Array = np.ndarray[Any, Any]
MAIN = Path(p.__file__).parents[1] / "main.py"
WAIT_S = 20.0
# Runs every test of this folder under another Python, which needs numpy.
PYTHON = os.environ.get("NAIAD_TEST_CHILD_PYTHON", sys.executable)
HEAD = """
import json, os, sys, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils
"""
FRAME_KINDS = {
    value: name for name, value in vars(p).items() if name.isupper() and isinstance(value, int) and value > 9
}


@dataclass
class Frame:
    """One frame from the child."""

    kind: int
    number: int
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    def __str__(self) -> str:
        return f"{FRAME_KINDS.get(self.kind, self.kind)} {self.number} {self.payload[:200]!r}"


@dataclass
class Response:
    """One response from the child."""

    request: int
    flags: int
    outputs: dict[str, Array] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    code: int = 0
    segments: list[int] = field(default_factory=list)

    @property
    def final(self) -> bool:
        return bool(self.flags & p.FLAG_FINAL)


@dataclass
class Request:
    """One request for the child: inputs by name, or wire datatype and bytes instead of an array."""

    inputs: Mapping[str, Array | tuple[str, Sequence[int], bytes]]
    outputs: Sequence[str] = ()
    id: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class Child:
    """A child process that serves one model."""

    def __init__(self, python: str = PYTHON, env: Mapping[str, str] | None = None) -> None:
        self.connection, theirs = socket.socketpair()
        self.connection.settimeout(WAIT_S)
        with theirs:
            self.process = subprocess.Popen(
                [python, "-u", str(MAIN), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
            )
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._forms: dict[int, Any] = {}
        self._own_forms: dict[str, int] = {}
        self._segments: dict[int, mmap.mmap] = {}
        self.own_segments: dict[int, mmap.mmap] = {}
        self.released: list[int] = []
        self.dropped: list[int] = []
        self.aside: list[Frame] = []
        # How often the child waited until all was taken in.
        self.caught_up = 0
        # Beside what every model is told.
        self.more_orders: dict[str, Any] = {}

    # Frames

    def send(self, kind: int, number: int = 0, payload: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        frame = p.FRAME.pack(kind, len(payload), number) + payload
        if descriptors:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors).tobytes())]
            sent = self.connection.sendmsg([frame[:1]], rights)
            frame = frame[sent:]
        self.connection.sendall(frame)

    def send_json(self, kind: int, number: int, content: Any) -> None:
        self.send(kind, number, json.dumps(content).encode())

    def receive(self) -> Frame:
        """The next frame that is not about forms and segments; those are taken in."""
        while True:
            frame = self._frame()
            if frame.kind == p.SCHEMA:
                self._forms[frame.number] = frame.json
            elif frame.kind == p.FORGET_SCHEMAS:
                self._forms.clear()
            elif frame.kind == p.SEGMENT:
                descriptor = self._descriptors.pop(0)
                self._segments[frame.number] = mmap.mmap(descriptor, int.from_bytes(frame.payload, "little"))
                os.close(descriptor)
            elif frame.kind == p.DROP_SEGMENT:
                self._segments.pop(frame.number).close()
                self.dropped.append(frame.number)
            elif frame.kind == p.RELEASE:
                self.released += [n for (n,) in p.NUMBERS.iter_unpack(frame.payload)]
            elif frame.kind == p.CONTROL_REQUEST and frame.json.get("what") == p.CATCH_UP:
                self.caught_up += 1
                self.send_json(p.REPLY, frame.number, {"value": None})
            else:
                return frame

    def _frame(self) -> Frame:
        while True:
            if len(self._received) >= p.FRAME.size:
                kind, size, number = p.FRAME.unpack_from(self._received)
                end = p.FRAME.size + size
                if len(self._received) >= end:
                    payload = bytes(self._received[p.FRAME.size : end])
                    del self._received[:end]
                    return Frame(kind, number, payload)
            data, ancillary, _, _ = self.connection.recvmsg(1 << 20, socket.CMSG_SPACE(64))
            for _, _, packed in ancillary:
                self._descriptors += array.array("i", packed)
            if not data:
                raise EOFError(f"the child closed the connection, having said: {self.said()}")
            self._received += data

    def expect(self, kind: int, *skip: int) -> Frame:
        """The next frame, which must be of that kind; frames of the kinds to skip are put aside."""
        while True:
            frame = self.receive()
            if frame.kind == kind:
                return frame
            if frame.kind not in skip:
                raise AssertionError(f"expected {FRAME_KINDS[kind]}, found {frame}")
            self.aside.append(frame)

    # The life of the model

    def start(
        self, model_py: Path, decoupled: bool = False, mode: str = "serve", config: Any = None, **args: str
    ) -> Frame:
        """Load a model; the answer to INIT."""
        version = model_py.parent
        arguments = {
            "model_config": json.dumps(config or {}),
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_instance_name": "m_0_0",
            "model_repository": str(version.parent),
            "model_version": version.name,
            "model_name": "m",
            **args,
        }
        orders = {
            "version": p.VERSION,
            "mode": mode,
            "model_py": str(model_py),
            "paths": [str(version), str(version.parent)],
            "args": arguments,
            "config": config or {},
            "decoupled": decoupled,
            **self.more_orders,
        }
        self.send_json(p.INIT, 0, orders)
        while True:
            frame = self.receive()
            if frame.kind in (p.READY, p.FAILED, p.CONFIG):
                return frame
            self.aside.append(frame)
            if frame.kind == p.CONTROL_REQUEST:
                return frame

    def said(self) -> str:
        """What the child has written to stdout and stderr, once it has ended."""
        self.process.wait(WAIT_S)
        if self.process.stdout is None or self.process.stdout.closed:
            return ""
        with self.process.stdout as stream:
            return stream.read().decode()

    def finish(self) -> int:
        """Ask the child to end; its exit code."""
        self.send(p.FINALIZE)
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        self.connection.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        for mapped in (*self._segments.values(), *self.own_segments.values()):
            with contextlib.suppress(BufferError):
                mapped.close()

    # Requests and responses

    def form(self, content: Mapping[str, Any]) -> int:
        """The number of one of the server's forms, which is sent when it is new."""
        text = json.dumps(content)
        if text not in self._own_forms:
            self._own_forms[text] = len(self._own_forms) + 1
            self.send(p.SCHEMA, self._own_forms[text], text.encode())
        return self._own_forms[text]

    def forget_forms(self) -> None:
        self._own_forms.clear()
        self.send(p.FORGET_SCHEMAS)

    def add_segment(self, number: int, size: int) -> mmap.mmap:
        """Make one of the server's segments and introduce it."""
        descriptor = os.memfd_create("test")
        os.ftruncate(descriptor, size)
        self.own_segments[number] = mmap.mmap(descriptor, size)
        self.send(p.SEGMENT, number, size.to_bytes(8, "little"), [descriptor])
        os.close(descriptor)
        return self.own_segments[number]

    def execute(self, batch: int, requests: Sequence[Request], first: int = 1, segments: Sequence[int] = ()) -> None:
        """Hand a batch over; its requests are numbered from ``first``. Tensors go into the given segments while there
        are any, then into the frame."""
        heads, data = [p.COUNT.pack(len(requests), 0)], bytearray()
        numbers = list(segments)
        for index, request in enumerate(requests):
            described, places = self._inputs(request.inputs, data, numbers)
            form = self.form({"inputs": described, "outputs": list(request.outputs), **request.options})
            heads.append(p.REQUEST.pack(first + index, form, len(request.id.encode()), 0))
            heads += places
            heads.append(request.id.encode())
        self.send(p.EXECUTE, batch, aligned(b"".join(heads)) + bytes(data))

    def execute_uniform(
        self, batch: int, requests: Sequence[Request], first: int = 1, steps: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Hand a batch over in one go, whose requests differ in their tensors' elements and in their ids alone.

        ``steps``: the number of the sequence of each, and its flags, in which they differ as well.
        """
        data = bytearray()
        forms = set()
        for request in requests:
            described, _ = self._inputs(request.inputs, data, [])
            forms.add(self.form({"inputs": described, "outputs": list(request.outputs), **request.options}))
        (form,) = forms
        ids = b"\0".join(r.id.encode() for r in requests) if any(r.id for r in requests) else b""
        said = b"".join(p.STEP.pack(*step, 0) for step in steps)
        head = p.UNIFORM.pack(first, len(requests), form, len(ids), p.COLUMN_STEPS if steps else 0) + said + ids
        self.send(p.EXECUTE_UNIFORM, batch, aligned(head) + bytes(data))

    def run_uniform(
        self, requests: Sequence[Request], batch: int = 1, steps: Sequence[tuple[int, int]] = ()
    ) -> list[Mapping[str, Any]]:
        """Execute such a batch; the outputs of each request, from the frame that answers all at once."""
        self.execute_uniform(batch, requests, steps=steps)
        frame = self.expect(p.RESPONSES_UNIFORM, p.LOG)
        assert frame.number == batch
        count, number = p.COUNT.unpack_from(frame.payload)
        at, found = p.ALIGNMENT, []
        for _ in range(count):
            outputs = {}
            for name, wire, shape in self._forms[number]["outputs"]:
                size = BY_WIRE[wire].itemsize * int(np.prod(shape))
                outputs[name] = array_of(wire, shape, frame.payload[at : at + size])
                at += -(-size // p.ALIGNMENT) * p.ALIGNMENT
            found.append(outputs)
        assert at == len(frame.payload)
        return found

    def _inputs(self, inputs: Mapping[str, Any], data: bytearray, segments: list[int]) -> tuple[list[Any], list[bytes]]:
        described, places = [], []
        for name, value in inputs.items():
            wire, shape, content = value if isinstance(value, tuple) else wire_form(value)
            described.append([name, wire, list(shape)])
            if segments:
                segment = segments.pop(0)
                self.own_segments[segment][: len(content)] = content
                places.append(p.PLACE.pack(segment, 0, 0, len(content)))
                continue
            places.append(p.PLACE.pack(0, 0, len(data), len(content)))
            data += aligned(content)
        return described, places

    def responses(self, frame: Frame) -> list[Response]:
        """The responses that a RESPONSES or RESPONSE frame holds."""
        at, count = (p.COUNT.size, p.COUNT.unpack_from(frame.payload)[0]) if frame.kind == p.RESPONSES else (0, 1)
        heads = []
        for _ in range(count):
            request, form_number, flags, error_bytes, _ = p.RESPONSE_HEAD.unpack_from(frame.payload, at)
            at += p.RESPONSE_HEAD.size
            form = self._forms[form_number] if form_number else {"outputs": [], "parameters": {}}
            places = [p.PLACE.unpack_from(frame.payload, at + i * p.PLACE.size) for i in range(len(form["outputs"]))]
            at += len(places) * p.PLACE.size
            heads.append((request, flags, form, places, frame.payload[at : at + error_bytes]))
            at += error_bytes
        return [self._response(frame.payload, -(-at // p.ALIGNMENT) * p.ALIGNMENT, *head) for head in heads]

    def _response(
        self, payload: bytes, data: int, request: int, flags: int, form: Any, places: Any, error: bytes
    ) -> Response:
        response = Response(request, flags, parameters=form["parameters"])
        if error:
            content = json.loads(error)
            response.error, response.code = content["message"], content["code"]
        for (name, wire, shape), (segment, _, offset, size) in zip(form["outputs"], places, strict=True):
            assert offset % p.ALIGNMENT == 0
            source: Any = self._segments[segment] if segment else payload
            start = offset if segment else data + offset
            response.outputs[name] = array_of(wire, shape, bytes(source[start : start + size]))
            response.types[name] = wire
            if segment:
                response.segments.append(segment)
        return response

    def run(self, requests: Sequence[Request], batch: int = 1, first: int = 1) -> list[Response]:
        """Execute a batch in default mode; the responses of its RESPONSES frame."""
        self.execute(batch, requests, first)
        frame = self.expect(p.RESPONSES, p.LOG)
        assert frame.number == batch
        return self.responses(frame)

    def run_failing(self, requests: Sequence[Request], batch: int = 1) -> str:
        """Execute a batch that fails as a whole; its message."""
        self.execute(batch, requests)
        frame = self.expect(p.DONE, p.LOG)
        assert frame.number == batch
        return str(frame.json["message"])

    def run_decoupled(self, requests: Sequence[Request], batch: int = 1, first: int = 1) -> tuple[list[Response], Any]:
        """Execute a batch in decoupled mode; all its responses, and what DONE holds."""
        self.execute(batch, requests, first)
        return self.collect(batch, len(requests))

    def collect(self, batch: int, requests: int) -> tuple[list[Response], Any]:
        """Responses until so many requests have ended and the batch is done."""
        responses: list[Response] = []
        done: Any = None
        while done is None or sum(r.final for r in responses) < (0 if done.get("message") else requests):
            frame = self.receive()
            if frame.kind == p.RESPONSE:
                responses += self.responses(frame)
            elif frame.kind == p.DONE:
                assert frame.number == batch
                done = frame.json
            else:
                self.aside.append(frame)
        return responses, done

    def answer_call(
        self, call: int, outputs: Mapping[str, Array] | None = None, flags: int = p.FLAG_FINAL, error: str = ""
    ) -> None:
        """Send a response to a call of the model."""
        if error:
            text = json.dumps({"message": error, "code": 5}).encode()
            self.send(p.CALL_RESPONSE, call, p.RESPONSE_HEAD.pack(0, 0, flags | p.FLAG_ERROR, len(text), 0) + text)
            return
        if outputs is None:
            self.send(p.CALL_RESPONSE, call, p.RESPONSE_HEAD.pack(0, 0, flags | p.FLAG_EMPTY, 0, 0))
            return
        data = bytearray()
        described, places = self._inputs(outputs, data, [])
        form = self.form({"outputs": described, "parameters": {}})
        head = p.RESPONSE_HEAD.pack(0, form, flags, 0, 0) + b"".join(places)
        self.send(p.CALL_RESPONSE, call, aligned(head) + bytes(data))

    def read_call(self, frame: Frame) -> tuple[Any, Any, dict[str, Array]]:
        """Head, form and inputs of a CALL frame."""
        (head_bytes,) = p.NUMBERS.unpack_from(frame.payload)
        at = 8 + head_bytes
        head = json.loads(frame.payload[8:at])
        _, form_number, id_bytes, _ = p.REQUEST.unpack_from(frame.payload, at)
        form = self._forms[form_number]
        at += p.REQUEST.size
        places = [p.PLACE.unpack_from(frame.payload, at + i * p.PLACE.size) for i in range(len(form["inputs"]))]
        at += len(places) * p.PLACE.size
        assert frame.payload[at : at + id_bytes].decode() == head["id"]
        data = -(-(at + id_bytes) // p.ALIGNMENT) * p.ALIGNMENT
        inputs = {}
        for (name, wire, shape), (segment, _, offset, size) in zip(form["inputs"], places, strict=True):
            source: Any = self._segments[segment] if segment else frame.payload
            start = offset if segment else data + offset
            inputs[name] = array_of(wire, shape, bytes(source[start : start + size]))
        return head, form, inputs


def aligned(content: bytes) -> bytes:
    """The bytes, filled up to the alignment of tensors."""
    return content + bytes(-len(content) % p.ALIGNMENT)


def wire_form(value: Array) -> tuple[str, Sequence[int], bytes]:
    """Datatype, shape and bytes of an array."""
    if value.dtype == np.object_:
        return "BYTES", value.shape, bytes(encode_bytes(value))
    wire = next(t.wire for t in BY_WIRE.values() if t.numpy == value.dtype)
    return wire, value.shape, value.tobytes()


def array_of(wire: str, shape: Sequence[int], content: bytes) -> Array:
    """The array that a tensor's bytes stand for."""
    if wire == "BYTES":
        return decode_bytes(content, int(np.prod(shape)), "the response").reshape(shape)
    return np.frombuffer(content, BY_WIRE[wire].numpy).reshape(shape)


def write_model(folder: Path, source: str, head: str = HEAD) -> Path:
    """Write a model of version 1; its file."""
    path = folder / "m" / "1" / "model.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + textwrap.dedent(source))
    return path


def write_execute(folder: Path, body: str) -> Path:
    """Write a model whose ``execute(self, requests)`` has the given body."""
    model = "class TritonPythonModel:\n    def execute(self, requests):\n" + textwrap.indent(
        textwrap.dedent(body), " " * 8
    )
    return write_model(folder, model)


@contextlib.contextmanager
def worker_of(model_py: Path, decoupled: bool = False, python: str = PYTHON, **args: str) -> Iterator[Child]:
    """A child that is ready to execute a model; gone at the end."""
    with bare_worker(python) as child:
        answer = child.start(model_py, decoupled, **args)
        assert answer.kind == p.READY, answer
        yield child


@contextlib.contextmanager
def bare_worker(python: str = PYTHON, env: Mapping[str, str] | None = None) -> Iterator[Child]:
    """A child that was told nothing yet; gone at the end."""
    child = Child(python, env)
    try:
        yield child
    finally:
        child.close()


def eventually(condition: Any, what: str, within_s: float = WAIT_S) -> None:
    """Wait until a condition that another process brings about is true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)
