"""Inference requests of the binary tensor extension, and what is needed to read their answers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .figures import CaseError

Array = np.ndarray[Any, Any]
DATATYPES = {"float32": "FP32", "int64": "INT64", "int32": "INT32", "float16": "FP16", "uint8": "UINT8"}
NUMPY_TYPES = {wire: np.dtype(name) for name, wire in DATATYPES.items()}
HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: a load generator may repeat it as it is."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"

    def wire(self, *, close: bool = False) -> bytes:
        """The bytes that go over the socket."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if close:
            lines.append("Connection: close")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


def infer_path(model: str) -> str:
    """The path under which a model answers inference requests."""
    return f"/v2/models/{model}/infer"


def binary_request(model: str, inputs: Mapping[str, Array], output: str, request_id: str = "") -> Request:
    """A request whose inputs and requested output are binary tensors."""
    header: dict[str, object] = {"id": request_id} if request_id else {}
    header["inputs"] = [_binary_input(name, array) for name, array in inputs.items()]
    header["outputs"] = [{"name": output, "parameters": {"binary_data": True}}]
    return with_header(model, header, b"".join(np.ascontiguousarray(a).tobytes() for a in inputs.values()))


def with_header(model: str, header: Mapping[str, object], data: bytes) -> Request:
    """A request of a given JSON header and the binary data behind it, whether they fit together or not."""
    head = json.dumps(header, separators=(",", ":")).encode()
    headers = {HEADER_LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    return Request(infer_path(model), headers, head + data)


def json_request(model: str, header: Mapping[str, object]) -> Request:
    """A request that is all JSON."""
    body = json.dumps(header, separators=(",", ":")).encode()
    return Request(infer_path(model), {"Content-Type": "application/json"}, body)


def _binary_input(name: str, array: Array) -> dict[str, object]:
    return {
        "name": name,
        "shape": list(array.shape),
        "datatype": DATATYPES[array.dtype.name],
        "parameters": {"binary_data_size": array.nbytes},
    }


def read_outputs(body: bytes, header_length: int) -> dict[str, Array]:
    """The tensors of a binary answer, by name."""
    position = header_length
    outputs: dict[str, Array] = {}
    for tensor in json.loads(body[:header_length])["outputs"]:
        size = tensor["parameters"]["binary_data_size"]
        dtype = NUMPY_TYPES[tensor["datatype"]]
        outputs[tensor["name"]] = np.frombuffer(body[position : position + size], dtype).reshape(tensor["shape"])
        position += size
    return outputs


def check_answer(port: int, request: Request, output: str, expected: Array) -> None:
    """Send ``request`` once and compare the answer: a fast wrong answer is not worth measuring.

    Raises:
        CaseError: the status is not 200 or the values are not the expected ones.
    """
    headers, body = ask_well(port, request)
    answer = read_outputs(body, int(headers[HEADER_LENGTH.lower()]))[output]
    if answer.shape != expected.shape or not np.allclose(answer, expected, rtol=1e-3, atol=1e-4):
        found, wanted = (f"shape {array.shape}, {array.ravel()[:4]}..." for array in (answer, expected))
        raise CaseError(f"{request.path} gave a wrong {output}: {found}; expected {wanted}")


def ask_well(port: int, request: Request, timeout: float = 30) -> tuple[dict[str, str], bytes]:
    """``ask``, without the status.

    Raises:
        CaseError: it is not 200.
    """
    status, headers, body = ask(port, request, timeout)
    if status != 200:
        raise CaseError(f"{request.path} answered {status} instead of 200: {body[:500].decode(errors='replace')}")
    return headers, body


def ask(port: int, request: Request, timeout: float = 30) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own: status, headers with names in lower case, body; ``timeout`` in s."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(request.method, request.path, request.body or None, dict(request.headers))
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()
