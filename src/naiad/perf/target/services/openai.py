"""Services with the API of OpenAI, and streams of the generate extension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import orjson

from naiad.perf.settings import TargetSettings
from naiad.perf.steps import ModelDescription, Step, TensorValue
from naiad.perf.target.http_channel import HttpChannel
from naiad.perf.target.http_request import HttpRequestBytes
from naiad.perf.target.http_response import HttpResponseReader
from naiad.perf.target.protocol import ClientChannel, Poller, Problem, ResponseListener, TargetError
from naiad.perf.target.services.body_service import BodyService, WholeStep
from naiad.perf.target.services.chat_step import ChatStep
from naiad.perf.target.services.event_channel import EventChannel
from naiad.perf.target.services.failures import judge_failure
from naiad.perf.target.services.generated_text import GENERATE_STREAM, ChatStream, output_counter, whole_tokens
from naiad.perf.transfer import TransferTimes
from naiad.tensor.bytes_codec import encode_bytes

_PORT: Final = 8000


class OpenAiTarget(BodyService):
    """An endpoint that takes the payloads of the input data as they are."""

    def __init__(self, settings: TargetSettings) -> None:
        """Reach the server.

        Raises:
            TargetError: it is not reached, or the streams of the endpoint have no known form.
        """
        self._is_generate = settings.endpoint.rstrip("/").endswith(GENERATE_STREAM)
        self.is_streaming = settings.streaming or self._is_generate
        self._is_known = self.is_streaming
        self._path = "/" + settings.endpoint.lstrip("/")
        self._stream = output_counter(settings.endpoint)
        if settings.streaming and self._stream is None:
            raise TargetError(
                f"--streaming cannot read the streams of '{settings.endpoint}': it knows those of chat/completions, "
                "completions and generate_stream; leave it out, or correct --endpoint"
            )
        self._is_chat = self._stream is ChatStream
        super().__init__(settings, _PORT)

    def describe(self) -> ModelDescription:
        """The model, of which the API says nothing."""
        return ModelDescription(self._settings.model, self._settings.version, (), ())

    def encode(self, step: Step, index: int) -> WholeStep[HttpRequestBytes]:
        """The payload with what it lacks: the model's name, and whether a stream is wanted.

        Raises:
            TargetError: the payload asks for a stream and an earlier one or the options do not, or the other way round.
        """
        if self._is_generate:
            return WholeStep(self._request(step.payload, index))
        payload = self._completed(orjson.loads(step.payload), index)
        plain = self._request(orjson.dumps(payload), index)
        if self._is_chat and isinstance(payload.get("messages"), list):
            return ChatStep(plain, payload, step.delay_ms, partial(self._request, index=index))
        return WholeStep(plain)

    def _request(self, body: bytes, index: int) -> HttpRequestBytes:
        return self._post(self._path, body, index=index, keeps_body=True)

    def _completed(self, payload: dict[str, Any], index: int) -> dict[str, Any]:
        if self._settings.streaming:
            payload.setdefault("stream", True)
        asked = bool(payload.get("stream", False))
        if not self._is_known:
            # As for perf_analyzer: GenAI-Perf says in the payloads alone that it wants streams.
            self._is_known, self.is_streaming = True, asked and self._stream is not None
        if asked is not self.is_streaming and self._stream is not None:
            found = orjson.dumps(payload.get("stream", False)).decode()
            fix = "leave out --streaming" if self._settings.streaming else "make all payloads alike"
            raise TargetError(f'the payload of step {index} has "stream": {found}: change it, or {fix}')
        payload.setdefault("model", self._settings.model)
        return payload

    def outputs_of(self, response: tuple[bytes, int]) -> Mapping[str, TensorValue]:
        """A whole response as text, or an event of a stream as it came."""
        text = b"data: %b\n\n" % response[0] if self.is_streaming else response[0]
        return {"response": TensorValue("response", "BYTES", (1,), encode_bytes(np.array([text], np.object_)))}

    def open(self, poller: Poller, listener: ResponseListener, places: int) -> ClientChannel:
        """A new channel with one place."""
        channel: HttpChannel
        if self.is_streaming and self._stream is not None:
            channel = EventChannel(self._address, poller, listener, self._stream, judge_failure)
        else:
            channel = HttpChannel(self._address, poller, listener, WholeResponses(listener.times))
        channel.connect()
        return channel


class WholeResponses:
    """Judges responses that come as a whole, and counts their tokens."""

    def __init__(self, times: TransferTimes) -> None:
        self._times = times

    def __call__(self, request: Any, reader: HttpResponseReader) -> Problem | None:
        """The fault of a response; None for a right one."""
        if reader.status != 200:
            return judge_failure(request, reader)
        request.body = bytes(reader.body or b"")
        tokens, problem = whole_tokens(request.body)
        self._times.output_tokens += tokens
        return problem
