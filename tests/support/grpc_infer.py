"""Inference over gRPC without a transport: models to ask, requests to ask with, and a caller of the real services."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from naiad.config.messages import message_class
from naiad.frontends.grpc.v2.infer import GrpcInferHandler
from naiad.frontends.grpc.v2.infer_reader import RequestDecoder
from naiad.frontends.grpc.v2.stream import StreamService
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_WIRE, DATATYPES
from naiad.testing import write_model
from support import event_loops
from support.grpc_calls import RecordedCall
from support.http_application import House, identity_config, serving, write_look_up

Request = message_class("ModelInferRequest")
Response = message_class("ModelInferResponse")
Streamed = message_class("ModelStreamInferResponse")

MODELS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "floats": (("FP32", "[ -1 ]"),),
    "matrix": (("INT16", "[ -1, -1 ]"),),
    "pair": (("INT32", "[ 16 ]"), ("INT32", "[ 16 ]")),
    "mixed": (("INT32", "[ 2 ]"), ("BYTES", "[ -1 ]"), ("FP64", "[ 1 ]")),
    "halves": (("BF16", "[ 2 ]"), ("FP16", "[ -1 ]"), ("BOOL", "[ 1 ]")),
}
"""Identity models with a batch size of up to 8; ``INPUT0``, ... come back as ``OUTPUT0``, ..."""


def write_models(repository: Path) -> None:
    """All of ``MODELS``; ``slow``, which takes its time; ``types``, with an optional input per datatype; a table."""
    for name, tensors in MODELS.items():
        described = [(str(i), BY_WIRE[wire].config, dims) for i, (wire, dims) in enumerate(tensors)]
        write_model(repository, name, identity_config(*described, more="max_batch_size: 8"))
    slow = 'parameters { key: "execute_delay_ms" value { string_value: "50" } }'
    write_model(repository, "slow", identity_config(("0", "TYPE_FP32", "[ -1 ]"), more=f"max_batch_size: 8 {slow}"))
    inputs = ", ".join(
        f'{{ name: "IN_{t.wire}" data_type: {t.config} dims: [ -1 ] optional: true }}' for t in DATATYPES
    )
    outputs = ", ".join(f'{{ name: "OUT_{t.wire}" data_type: {t.config} dims: [ -1 ] }}' for t in DATATYPES)
    write_model(repository, "types", f'backend: "identity" input [ {inputs} ] output [ {outputs} ]')
    write_look_up(repository)


def request(model: str, *arrays: np.ndarray, wires: Sequence[str] = (), **more: Any) -> Any:
    """A request with raw tensors for the inputs ``INPUT0``, ... of the types that ``MODELS`` or ``wires`` name."""
    message = Request(model_name=model, **more)
    wires = wires or [wire for wire, _ in MODELS.get(model, (("FP32", ""),))]
    for i, (wire, array) in enumerate(zip(wires, arrays, strict=True)):
        message.inputs.add(name=f"INPUT{i}", datatype=wire, shape=array.shape)
        message.raw_input_contents.append(encode_bytes(array) if wire == "BYTES" else array.tobytes())
    return message


def floats(*values: float, model: str = "floats", **more: Any) -> Any:
    """A request with one row of floats."""
    return request(model, np.array([values], np.float32), **more)


def pair(**more: Any) -> Any:
    """A request for ``pair``, with 0 to 15 and sixteen ones."""
    return request("pair", np.arange(16, dtype=np.int32)[None], np.ones((1, 16), np.int32), **more)


def tensors(answer: Any) -> dict[str, np.ndarray]:
    """The outputs of a response by name."""
    found = {}
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
        dtype = BY_WIRE[output.datatype]
        count = int(np.prod(output.shape))
        flat = decode_bytes(raw, count, "") if dtype.is_bytes else np.frombuffer(raw, dtype.numpy)
        found[output.name] = flat.reshape(output.shape)
    return found


class Services:
    """The inference services over one engine."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.decoder = RequestDecoder(house.engine, serves_decoupled=False)
        self.infer = GrpcInferHandler(self.decoder)
        self.streams = StreamService(house.engine)

    def ask(self, message: Any) -> RecordedCall:
        """Begin a ``ModelInfer`` call with a message or with bytes."""
        call = RecordedCall()
        self.infer(call, message.SerializeToString() if isinstance(message, Request) else message)
        return call

    async def answer(self, message: Any) -> Any:
        """Call ``ModelInfer``, which must succeed."""
        return await self.ask(message).answer(Response)

    async def error(self, message: Any) -> tuple[int, str]:
        """Call ``ModelInfer``, which must fail: the code and the text."""
        call = self.ask(message)
        status = await call.finished()
        assert status[0]
        assert call.messages == []
        return status


Scenario = Callable[[Services], Coroutine[Any, Any, None]]


def play(repository: Path, scenario: Scenario) -> None:
    """Load all models, run a scenario and end everything."""

    async def test(house: House) -> None:
        await scenario(Services(house))

    write_models(repository)
    event_loops.play(serving(repository), test)
