"""One request in each form that the servers read, and the scores in its response."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ..figures import CaseError
from ..grpc_request import INFER, ask_unary, infer_message, read_output
from ..infer import HEADER_LENGTH, Array, Request, ask, binary_request, json_request, read_outputs
from .subjects import Subject

Wire = Literal["json", "b64", "binary", "grpc"]
WIRES: tuple[Wire, ...] = ("json", "b64", "binary", "grpc")
ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request as its bytes: ``path`` is that of HTTP or the method of gRPC.

    Attributes:
        read: the scores in a response, given its headers and its body.
    """

    protocol: Literal["http", "grpc"]
    path: str
    body: bytes
    read: Callable[[Mapping[str, str], bytes], Array]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def http(self) -> Request:
        """The same, as the other cases send it."""
        return Request(self.path, self.headers, self.body)

    def ask(self, port: int) -> Array:
        """Send it once.

        Raises:
            CaseError: the response is no success, or has no scores.
            OSError: nobody listens, or the connection broke.
        """
        if self.protocol == "grpc":
            return self.read({}, ask_unary(port, self.path, self.body))
        status, headers, body = ask(port, self.http, ANSWER_SECONDS)
        if status != 200:
            raise CaseError(f"{self.path} answered {status}: {body[:300].decode(errors='replace')}")
        try:
            return self.read(headers, body)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise CaseError(f"{self.path}: no scores in {body[:300]!r}: {error!r}") from None


Dialect = Callable[[Subject, Wire], WireRequest]


def numbers(row: Array) -> list[float]:
    """The values of a row with as many digits as FP32 has: others would make bodies twice as long."""
    return [float(str(value)) for value in row.ravel()]


def _json(path: str, given: object, read: Callable[[Any], Array]) -> WireRequest:
    body = json.dumps(given, separators=(",", ":")).encode()
    return WireRequest("http", path, body, lambda _, answer: read(json.loads(answer)), JSON_HEADERS)


JSON_HEADERS = {"Content-Type": "application/json"}
BYTES_HEADERS = {"Content-Type": "application/octet-stream"}


def _encoded(row: Array) -> str:
    return base64.b64encode(row.tobytes()).decode()


def _decoded(text: str) -> Array:
    return np.frombuffer(base64.b64decode(text, validate=True), np.float32)


def plain(subject: Subject, wire: Wire) -> WireRequest:
    """What an application of one's own takes: ``{"values": [...]}``, ``{"b64": "..."}`` or the bytes alone."""
    if wire == "json":
        return _json("/json", {"values": numbers(subject.row)}, lambda answer: np.array(answer["scores"], np.float32))
    if wire == "b64":
        return _json("/b64", {"b64": _encoded(subject.row)}, lambda answer: _decoded(answer["b64"]))
    return WireRequest(
        "http", "/binary", subject.row.tobytes(), lambda _, answer: np.frombuffer(answer, np.float32), BYTES_HEADERS
    )


def rows(subject: Subject, wire: Wire) -> WireRequest:
    """BentoML's: the argument ``rows`` with a row of a batch."""
    if wire == "json":
        given = {"rows": [numbers(subject.row)]}
        return _json("/json", given, lambda answer: np.array(answer[0], np.float32))
    return _json("/b64", {"rows": [_encoded(subject.row)]}, lambda answer: _decoded(answer[0]))


def of_model(model: str, source: str, target: str) -> Dialect:
    """The KServe protocol, version 2, for a model with these names: base64 in the way of Naiad."""

    def request(subject: Subject, wire: Wire) -> WireRequest:
        if wire == "grpc":
            message = infer_message(model, {source: subject.row[np.newaxis]}, target)
            return WireRequest("grpc", INFER, message, lambda _, answer: read_output(answer, target)[0])
        if wire == "binary":
            made = binary_request(model, {source: subject.row[np.newaxis]}, target)
            return WireRequest("http", made.path, made.body, _binary_scores(target), made.headers)
        header: dict[str, Any] = {"inputs": [_v2_input(subject, source, numbers(subject.row))]}
        if wire == "b64":
            header = {"parameters": {"binary_data_encoding": "base64"}}
            header["inputs"] = [_v2_input(subject, source, {"b64": _encoded(subject.row)})]
        made = json_request(model, header)
        return WireRequest("http", made.path, made.body, _v2_scores, made.headers)

    return request


def of_mlserver(subject: Subject, wire: Wire) -> WireRequest:
    """The same protocol; base64 in the way of MLServer: elements of type BYTES of the content type ``base64``."""
    if wire != "b64":
        return of_model("scorer", "rows", "scores")(subject, wire)
    given = {
        "name": "rows",
        "shape": [1, 1],
        "datatype": "BYTES",
        "parameters": {"content_type": "base64"},
        "data": [_encoded(subject.row)],
    }
    made = json_request("scorer", {"inputs": [given]})
    return WireRequest("http", made.path, made.body, _v2_scores, made.headers)


def _v2_input(subject: Subject, source: str, data: object) -> dict[str, Any]:
    return {"name": source, "shape": [1, *subject.row.shape], "datatype": "FP32", "data": data}


def _v2_scores(_: Mapping[str, str], answer: bytes) -> Array:
    """Of the only output: numbers, or base64 of either server."""
    (output,) = json.loads(answer)["outputs"]
    data = output["data"]
    if isinstance(data, dict):
        return _decoded(data["b64"])
    return _decoded(data[0]) if output["datatype"] == "BYTES" else np.array(data, np.float32)


def _binary_scores(target: str) -> Callable[[Mapping[str, str], bytes], Array]:
    def read(headers: Mapping[str, str], answer: bytes) -> Array:
        return read_outputs(answer, int(headers[HEADER_LENGTH.lower()]))[target][0]

    return read
