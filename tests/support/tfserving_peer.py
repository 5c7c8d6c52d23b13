"""A server that answers as the page "RESTful API" of TensorFlow Serving describes it: a program of its own.

TensorFlow Serving itself comes as a container or a Debian package of its maker, and not from a package index. This
server computes real answers, reads rows and columns, and refuses what that page refuses. Run as
``python tfserving_peer.py NAME=VALUE ...``; the first line that it prints is its port.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson

Arrays = dict[str, "np.ndarray[Any, Any]"]
NUMPY = {"DT_FLOAT": np.float32, "DT_INT32": np.int32, "DT_INT64": np.int64, "DT_BOOL": np.bool_, "DT_STRING": object}
PATHS = (
    "/v1/models/half_plus_three",
    "/v1/models/half_plus_three/versions/123",
    "/v1/models/half_plus_three/labels/stable",
)


class Signature:
    """Inputs and outputs as name, type and shape (None for an unknown rank), and what is computed."""

    def __init__(self, inputs: dict[str, Any], outputs: dict[str, Any], compute: Callable[[Arrays], Arrays]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.compute = compute

    def described(self) -> dict[str, Any]:
        return {
            "inputs": {name: _info(name, *tensor) for name, tensor in self.inputs.items()},
            "outputs": {name: _info(name, *tensor) for name, tensor in self.outputs.items()},
            "method_name": "tensorflow/serving/predict",
        }


def _info(name: str, dtype: str, shape: list[int] | None) -> dict[str, Any]:
    dims = [{"size": str(size), "name": ""} for size in shape or ()]
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": shape is None}, "name": f"{name}:0"}


def _pair(given: Arrays) -> Arrays:
    total = given["a"].sum(axis=1) + given["b"].sum(axis=1)
    texts = np.array([f"{value:g}" for value in total], object)
    return {"sum": total.astype(np.float32), "text": texts}


SIGNATURES = {
    "serving_default": Signature(
        {"x": ("DT_FLOAT", [-1])}, {"y": ("DT_FLOAT", [-1])}, lambda given: {"y": given["x"] / np.float32(2) + 3}
    ),
    "pair": Signature(
        {"a": ("DT_FLOAT", [-1, 2]), "b": ("DT_INT32", [-1, 3])},
        {"sum": ("DT_FLOAT", [-1]), "text": ("DT_STRING", [-1])},
        _pair,
    ),
    "fixed": Signature({"x": ("DT_INT64", [2, 2])}, {"y": ("DT_INT64", [2, 2])}, lambda given: {"y": given["x"] * 2}),
    "any": Signature({"x": ("DT_BOOL", None)}, {"y": ("DT_BOOL", None)}, lambda given: {"y": ~given["x"]}),
    "echo": Signature(
        {"raw": ("DT_STRING", [-1, 2])},
        {"raw_bytes": ("DT_STRING", [-1, 2])},
        lambda given: {"raw_bytes": given["raw"]},
    ),
    "odd": Signature({"x": ("DT_QINT8", [-1])}, {}, lambda given: {}),
}


class RefusedError(Exception):
    """The request is answered with a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    is_camel = False
    fail_after = 1 << 62
    seen: ClassVar[list[dict[str, Any]]] = []

    def do_GET(self) -> None:
        path, _, last = self.path.rpartition("/")
        if self.path == "/seen":
            self.reply(200, self.seen)
        elif path in PATHS and last == "metadata":
            self.reply(200, self.metadata())
        else:
            self.reply(404, {"error": "Servable not found for request: Latest(other)"})

    def metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "model_spec": {"name": "half_plus_three", "signature_name": "", "version": "123"},
            "metadata": {"signature_def": {"signature_def": {name: s.described() for name, s in SIGNATURES.items()}}},
        }
        return _camel(found) if self.is_camel else found

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, _, verb = self.path.rpartition(":")
        try:
            if path not in PATHS or verb != "predict":
                raise RefusedError(404, "Servable not found for request: Latest(other)")
            if len(self.seen) >= self.fail_after:
                raise RefusedError(503, "the model is being unloaded")
            request = json.loads(body)
            self.seen.append({"path": self.path, "body": request})
            answer = predict(request)
        except RefusedError as error:
            self.reply(error.status, {"error": str(error)})
        else:
            self.reply(200, answer)

    def reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request, in the form in which it was put."""
    name = request.get("signature_name", "serving_default")
    if name not in SIGNATURES:
        raise RefusedError(400, f'Serving signature name: "{name}" not found in signature def')
    signature = SIGNATURES[name]
    if ("instances" in request) == ("inputs" in request):
        raise RefusedError(400, "Request body must have one of the keys instances and inputs")
    is_rows = "instances" in request
    given = _rows(request["instances"], signature) if is_rows else _columns(request["inputs"], signature)
    outputs = {name: _nested(name, array) for name, array in signature.compute(given).items()}
    if len(outputs) == 1:
        (content,) = outputs.values()
        return {"predictions" if is_rows else "outputs": content}
    if is_rows:
        return {"predictions": [dict(zip(outputs, row, strict=True)) for row in zip(*outputs.values(), strict=True)]}
    return {"outputs": outputs}


def _rows(instances: list[Any], signature: Signature) -> Arrays:
    if len(signature.inputs) == 1:
        (name,) = signature.inputs
        return {name: _array(name, instances, signature)}
    for row in instances:
        if not isinstance(row, dict) or row.keys() != signature.inputs.keys():
            raise RefusedError(400, "JSON Value: is not an object with all inputs of the signature")
    return {name: _array(name, [row[name] for row in instances], signature) for name in signature.inputs}


def _columns(inputs: Any, signature: Signature) -> Arrays:
    if not isinstance(inputs, dict):
        (name,) = signature.inputs
        inputs = {name: inputs}
    if inputs.keys() != signature.inputs.keys():
        raise RefusedError(400, "Missing 'inputs' or tensors that the signature does not have")
    return {name: _array(name, value, signature) for name, value in inputs.items()}


def _array(name: str, nested: Any, signature: Signature) -> np.ndarray[Any, Any]:
    dtype, shape = signature.inputs[name]
    array = np.array(nested, object)
    if dtype == "DT_STRING":
        flat = [base64.b64decode(v["b64"]) if isinstance(v, dict) else v.encode() for v in array.ravel()]
        array = np.array(flat, object).reshape(array.shape)
    else:
        kinds = {type(value) for value in array.ravel()}
        expected = {"f": {int, float}, "i": {int}, "b": {bool}}[np.dtype(NUMPY[dtype]).kind]
        if not kinds <= expected:
            raise RefusedError(400, f"JSON Value: of {name} is not of the type {dtype}")
        array = array.astype(NUMPY[dtype])
    if shape is not None and (
        array.ndim != len(shape) or any(size not in (-1, got) for size, got in zip(shape, array.shape, strict=True))
    ):
        raise RefusedError(400, f"input {name} has the shape {list(array.shape)}, expected {shape}")
    return array


def _nested(name: str, array: np.ndarray[Any, Any]) -> Any:
    if array.dtype != object:
        # Floats as the shortest text that gives the same float32 again.
        return orjson.loads(orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))
    if not name.endswith("_bytes"):
        return array.tolist()
    flat = [{"b64": base64.b64encode(value).decode()} for value in array.ravel()]
    return np.array(flat, object).reshape(array.shape).tolist()


def _camel(value: Any) -> Any:
    """The names of members as other servers of this API spell them. Names of tensors and signatures stay."""
    spelt = {"model_spec": "modelSpec", "tensor_shape": "tensorShape", "unknown_rank": "unknownRank"}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    if not isinstance(value, dict):
        return value
    inner = value.get("signature_def")
    if isinstance(inner, dict) and "signature_def" in inner:
        return {"signature_def": {"signatureDef": _camel(inner["signature_def"])}}
    return {spelt.get(name, name): _camel(item) for name, item in value.items()}


def main(words: list[str]) -> None:
    """Serve until standard input ends."""
    given = dict(word.partition("=")[::2] for word in words)
    Handler.is_camel = "camel" in given
    Handler.fail_after = int(given.get("fail_after", Handler.fail_after))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


@contextmanager
def tfserving_peer(*flags: str, **behaviour: object) -> Iterator[str]:
    """A running peer: its ``host:port``. ``/seen`` has the requests that it answered."""
    words = [*flags, *(f"{name}={value}" for name, value in behaviour.items())]
    # Imported here: as a program this file stands alone.
    from support.peer_process import running

    with running(Path(__file__), words) as address:
        yield address


if __name__ == "__main__":
    main(sys.argv[1:])
