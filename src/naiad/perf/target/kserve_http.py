"""Servers of the KServe protocol v2 over HTTP."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from naiad.perf.results import ServerParts
from naiad.perf.settings import InputSettings, TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.address import reach, split_url
from naiad.perf.target.http_channel import HttpChannel
from naiad.perf.target.http_request import HttpRequestBytes, HttpRequestWriter, request_head
from naiad.perf.target.http_response import CODING, HEADER_LENGTH, HttpResponseReader
from naiad.perf.target.model_text import read_description, read_parts, with_composing
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener, TargetError
from naiad.perf.target.question import query
from naiad.perf.target.region_calls import HttpRegionCalls, RegionCalls
from naiad.perf.target.tls import tls_context
from naiad.perf.target.validation import find_difference, http_outputs
from naiad.shared_memory.region import RegionRef
from naiad.wire.compression import EITHER, BrokenDataError, TooMuchDataError, inflate
from naiad.wire.json_text import kind_of

DESCRIBE_S: Final = 60.0
_DEFAULT_PORT: Final = 8000
_MAX_TEXT: Final = 300
_MAX_BODY_BYTES: Final = 1 << 31


class KserveHttpTarget:
    """A model of a server that is reached over HTTP."""

    protocol = "http"
    is_streaming = False

    def __init__(self, settings: TargetSettings, inputs: InputSettings) -> None:
        """Reach the server.

        Raises:
            TargetError: it is not reached.
        """
        self._settings = settings
        self._inputs = inputs
        secure, host, port, self._base = split_url(settings.url, _DEFAULT_PORT)
        self._address = reach(host, port, tls_context(settings, is_wanted=secure))
        self._model: ModelDescription | None = None
        self._writer: HttpRequestWriter | None = None

    @property
    def endpoint(self) -> str:
        """Where the server is."""
        return self._address.authority

    def describe(self) -> ModelDescription:
        """Ask the server for the model.

        Raises:
            TargetError: it does not answer, or has no such model.
        """
        described = self._describe(self._settings.model, self._settings.version)
        self._model = with_composing(described, self._settings.bls_composing_models, self._describe)
        path = self._path(self._settings.model, self._settings.version) + "/infer"
        self._writer = HttpRequestWriter(
            self._model,
            path,
            self._address.authority,
            self._settings.headers,
            self._settings.compression,
            self._inputs.input_format,
            self._inputs.output_format,
            dict(self._settings.request_parameters),
            keeps_responses=self._settings.keeps_responses,
        )
        return self._model

    def _describe(self, name: str, version: str) -> ModelDescription:
        path = self._path(name, version)
        metadata = self._get(path, f"the request for the model '{name}'")
        try:
            config = self._get(path + "/config", f"the request for the configuration of '{name}'")
        except TargetError:
            # The protocol has no configurations: they are an extension.
            config = {}
        return read_description(metadata, config, self._describe)

    def _path(self, name: str, version: str) -> str:
        path = f"{self._base}/v2/models/{quote(name, safe='')}"
        return f"{path}/versions/{quote(version, safe='')}" if version else path

    def _get(self, path: str, what: str) -> Any:
        request = self._question(path)
        query(self.open_side, request, f"{what} at {self.endpoint}", DESCRIBE_S)
        try:
            return json.loads(request.body)
        except ValueError:
            raise TargetError(f"{what} at {self.endpoint} gave no JSON: {_shown(request.body)}") from None

    def _question(self, path: str) -> HttpRequestBytes:
        head = request_head("GET", path, self._address.authority, self._settings.headers)
        return HttpRequestBytes(head + b"\r\n", keeps_body=True)

    def _post(self, path: str, body: bytes) -> None:
        query(self.open_side, self._post_request(path, body), f"the call {path} at {self.endpoint}", DESCRIBE_S)

    def _post_request(self, path: str, body: bytes) -> HttpRequestBytes:
        head = request_head("POST", self._base + path, self._address.authority, self._settings.headers)
        lines = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        return HttpRequestBytes(head + lines + body, keeps_body=True)

    def model_config(self) -> dict[str, Any]:
        """The configuration that the server has completed.

        Raises:
            TargetError: it does not answer, or has no such model.
        """
        name = self._settings.model
        config = self._get(
            self._path(name, self._settings.version) + "/config", f"the request for the configuration of '{name}'"
        )
        if not isinstance(config, dict):
            raise TargetError(
                f"the configuration of '{name}' at {self.endpoint} is {kind_of(config)}, expected an object"
            )
        return config

    def load_model(self, config: str | None, on_wait: Callable[[float], None]) -> None:
        """Have the server load the model, and wait for as long as it takes.

        Args:
            config: a configuration as JSON in place of that of the repository; None for that of the repository.
            on_wait: called about twice a second with the seconds so far.

        Raises:
            TargetError: it does not.
        """
        name = self._settings.model
        body = json.dumps({} if config is None else {"parameters": {"config": config}}).encode()
        request = self._post_request(f"/v2/repository/models/{quote(name, safe='')}/load", body)
        query(self.open_side, request, f"the load of the model '{name}' at {self.endpoint}", None, on_wait)

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Have outputs written to regions; gives the calls that register them. ``describe`` comes first."""
        assert self._writer is not None, "describe comes before place_tensors"
        self._writer.place_outputs(outputs)
        return HttpRegionCalls(self._post)

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Have the server trace the model.

        Raises:
            TargetError: it does not.
        """
        body = {name: value.split(",") if name == "trace_level" else value for name, value in settings.items()}
        path = f"/v2/models/{quote(self._settings.model, safe='')}/trace/setting"
        self._post(path, json.dumps(body).encode())

    def encode(self, step: Step, index: int) -> Any:
        """The bytes of a step; ``describe`` comes first.

        Raises:
            TargetError: JSON cannot carry one of its tensors.
        """
        assert self._writer is not None, "describe comes before encode"
        return self._writer.encode(step, index)

    def outputs_of(self, response: tuple[bytes, int]) -> Mapping[str, TensorValue]:
        """The outputs of a response; errors as ``http_outputs``."""
        return http_outputs(*response)

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel with one place."""
        channel = HttpChannel(self._address, poller, listener, judge_response)
        channel.connect()
        return channel

    def open_side(self, poller: Poller, listener: ResponseListener) -> ClientChannel:
        """A channel for questions beside the load."""
        return self.open(poller, listener, 1)

    def statistics_request(self) -> HttpRequestBytes:
        """The request for the server's counts: of all models when the model is made of others."""
        if self._model is not None and not self._model.composing:
            return self._question(self._path(self._model.name, self._model.version) + "/stats")
        return self._question(f"{self._base}/v2/models/stats")

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The counts since the start of the server."""
        try:
            return None if self._model is None else read_parts(json.loads(body), self._model)
        except (ValueError, TypeError, AttributeError):
            return None


def judge_response(request: Any, reader: HttpResponseReader) -> Problem | None:
    """The fault of a whole response; None for a right one."""
    body = b"" if reader.body is None else bytes(reader.body)
    if reader.status != 200:
        return f"HTTP {reader.status}", _error_text(body)
    if not request.keeps_body:
        return None
    coding = CODING.search(reader.head)
    if coding is not None:
        try:
            body = bytes(inflate(body, coding[1].decode(), EITHER, _MAX_BODY_BYTES))
        except (BrokenDataError, TooMuchDataError, zlib.error) as error:
            return "bad response", f"the body {error}"
    found = HEADER_LENGTH.search(reader.head)
    request.body, request.header_length = body, int(found[1]) if found else len(body)
    if not request.expected:
        return None
    return find_difference(request.expected, partial(http_outputs, *request.last_response))


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, LookupError, TypeError):
        return _shown(body) or "the response has no body"


def _shown(body: bytes) -> str:
    return body[:_MAX_TEXT].decode("utf-8", "replace").strip()
