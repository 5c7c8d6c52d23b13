"""``POST /v2/models/{model}[/versions/{version}]/generate`` and ``.../generate_stream``.

Both take a flat JSON object. The first returns the one response as such an object, the second sends every response as a
server-sent event as soon as the model has it. Both serve decoupled models and others.

Source: protocol section "Generate Extension" and recorded responses. The first response decides on the status, which is
400 for any error of the model (here 503 or 504 where a retry can help), and an error in the middle of a stream is one
event.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic_ns
from typing import Any, Final

import orjson

from naiad.config.spec import ModelSpec
from naiad.errors import InvalidArgumentError, NaiadError, QueueFullError, ResponseBacklogError, caller_text
from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.json_worker.pool import LARGE_OUTPUT_BYTES, MANY_TO_GENERATE, is_large_json, weight_in_json
from naiad.frontends.http.server.exchange import Body, Exchange
from naiad.frontends.http.server.replies import JSON, RETRY_AFTER, handler_failed, send_error
from naiad.frontends.http.server.streaming_response import StreamingResponse
from naiad.frontends.http.v2.http_request import HttpClientRequest
from naiad.frontends.http.v2.orca import load_fields
from naiad.frontends.http.v2.route_table import RouteServices
from naiad.frontends.inference.deferred_inputs import unvalidated_strings
from naiad.frontends.inference.model_wait import wait_for_model
from naiad.frontends.inference.refusals import id_field, id_in_json, id_of, log_refusal
from naiad.frontends.inference.request_planner import Planner, read_bytes
from naiad.request import Array, memory_of, request_label
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS
from naiad.telemetry.logs.server_log import request_log
from naiad.wire.http1.head import encode_head
from naiad.wire.v2.binary import BinaryPlan
from naiad.wire.v2.generate import encode_generated, read_generate
from naiad.wire.v2.generate_packed import unpack_generate
from naiad.wire.v2.header import InferHeader
from naiad.wire.v2.json import decode_data
from naiad.wire.v2.parameters import parameters_of
from naiad.wire.v2.response import OutputPart, datatype_of

log = logging.getLogger(__name__)

EVENTS: Final = "text/event-stream; charset=utf-8"
_NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)
MAX_UNWRITTEN: Final = 1024
"""The responses to a request that may wait while a large one before them is written."""

_Response = tuple[int, bytes | memoryview]
"""A response as JSON, with the status that it has as the first one."""
_Part = tuple[Mapping[str, Array] | None, NaiadError | None, bool]


class _GenerateRequest(HttpClientRequest):
    """A request whose responses its class sends.

    Attributes:
        is_over: the response is complete; further responses of the model are dropped.
    """

    __slots__ = ("is_over",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.is_over = False

    def cancel(self) -> None:
        # A caller that only ended its own direction still reads the response.
        self.is_over = self.exchange.closed()
        super().cancel()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.respond_part(outputs if error is None else None, error, True)

    def _fields(self, status: int) -> Sequence[tuple[str, str]]:
        """The header fields of the response, with the load of the model for callers that ask for it."""
        fields = load_fields(self.exchange.head.headers, self.model)
        if status != 200 and self.id:
            fields = (id_field(self.id), *fields)
        return (RETRY_AFTER, *fields) if status in (429, 503) else fields

    def _encode(self, outputs: Mapping[str, Array] | None, error: NaiadError | None) -> _Response:
        if error is None:
            plan = self.plan
            try:
                return 200, encode_generated(plan.model, plan.version, self.id, outputs or {}, plan.dtypes)
            except NaiadError as unsendable:
                error = unsendable
        return _refusal(error)

    def _is_large(self, outputs: Mapping[str, Array]) -> bool:
        """Whether a response takes so long to encode that a worker does it."""
        dtypes = self.plan.dtypes
        return sum(weight_in_json(a, dtypes[n]) for n, a in outputs.items() if n in dtypes) >= LARGE_OUTPUT_BYTES

    def _write_later(self, outputs: Mapping[str, Array], done: Callable[[_Response], None]) -> None:
        """Have a worker encode a large response."""

        def written(content: memoryview, _: int, error: NaiadError | None) -> None:
            try:
                done((200, content) if error is None else _refusal(error))
            except Exception:
                # This is a callback of the loop: no caller would handle the error.
                request_log(log, logging.ERROR, self.id, "the answer could not be sent", exc_info=True)

        plan = self.plan
        parts = [
            OutputPart(n, datatype_of(a, plan.dtypes[n]), a, False) for n, a in outputs.items() if n in plan.dtypes
        ]
        self.json_work.write_flat(plan.model, plan.version, self.id, parts, parameters_of(outputs), written)


class _WholeRequest(_GenerateRequest):
    """A request whose only response of the model becomes the response.

    Attributes:
        first: the only response so far, encoded.
        is_writing: a worker encodes it.
        is_last: no other response follows it.
    """

    __slots__ = ("first", "is_last", "is_writing")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.first: _Response | None = None
        self.is_writing = self.is_last = False

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            return
        if outputs is not None or error is not None:
            if self.first is not None or self.is_writing:
                # The status is that of the first response, as in the reference.
                self._respond((self.first or _NONE)[0], _error_json(_NOT_ONE))
                if not final:
                    self.model.cancel(self)
                return
            if error is None and outputs is not None and self._is_large(outputs):
                self.is_writing, self.is_last = True, final
                self._write_later(outputs, self._written)
                return
            self.first = self._encode(outputs, error)
        self.is_last = final
        # Not before ``final``: a second response would still make the whole an error.
        if final and not self.is_writing:
            self._respond(*(self.first or _NONE))

    def _written(self, response: _Response) -> None:
        self.is_writing = False
        self.first = response
        if self.is_last and not self.is_over:
            self._respond(*response)

    def _respond(self, status: int, body: bytes | memoryview) -> None:
        self.is_over = True
        self.exchange.send([encode_head(status, JSON, len(body), self._fields(status)), body])


class _StreamedRequest(_GenerateRequest):
    """A request of which every response is an event.

    Attributes:
        events: the response, once it has begun.
        is_held: the model was asked to pause.
        unwritten: the responses behind one that a worker encodes; None while no worker does.
    """

    __slots__ = ("events", "is_held", "unwritten")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.events: StreamingResponse | None = None
        self.is_held = False
        self.unwritten: deque[_Part] | None = None

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            return
        unwritten = self.unwritten
        if unwritten is None:
            self._take(outputs, error, final)
        elif len(unwritten) < MAX_UNWRITTEN:
            unwritten.append((outputs, error, final))
        else:
            self._abandon(final)

    def _take(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Send the next response."""
        if outputs is None and error is None:
            if final:
                self._end()
        elif self.events is not None and self.events.is_full:
            self._abandon(final)
        elif error is None and outputs is not None and self._is_large(outputs):
            self.unwritten = deque()
            if not final:
                # Responses behind it wait here, so the model should pause meanwhile.
                self._pause()
            self._write_later(outputs, partial(self._written, final))
        else:
            self._send(self._encode(outputs, error), final)

    def _send(self, response: _Response, final: bool) -> None:
        status, body = response
        if self.events is None:
            self.events = StreamingResponse(self.exchange, status, EVENTS, self._fields(status))
        if type(body) is bytes:
            self.events.send(b"data: %b\n\n" % body)
        else:
            self.events.send_large((b"data: ", body, b"\n\n"))
        if final:
            self._end()
        elif self.events.is_behind:
            self._pause()
            # The connection calls back when its peer takes data: nothing polls.
            self.events.when_taken(self._resume)

    def _written(self, final: bool, response: _Response) -> None:
        # Taken out first: ``respond_part`` below must send, or begin a queue of its own.
        waiting, self.unwritten = self.unwritten or deque(), None
        if self.is_over:
            return
        self._send(response, final)
        # Another large response makes those behind it wait again.
        for part in waiting:
            self.respond_part(*part)
        if self.events is not None and not self.events.is_behind:
            self._resume()

    def _pause(self) -> None:
        if not self.is_held:
            self.is_held = True
            self.model.pause(self, BACKPRESSURE_TIMEOUT_MS)

    def _resume(self) -> None:
        """The caller took the events that waited."""
        if self.is_held and not self.is_over and self.unwritten is None:
            self.is_held = False
            self.model.resume(self)

    def _abandon(self, final: bool) -> None:
        """Cancel the request: its caller takes the events too slowly, and not all of them can be kept."""
        error = ResponseBacklogError(
            f"{request_label(self.id)}the responses come faster than they are taken: too many wait, so the request was "
            "cancelled"
        )
        self._send(_refusal(error), True)
        if not final:
            self.model.cancel(self)

    def _end(self) -> None:
        self.is_over = True
        if self.events is None:
            # A model without a response still owes the caller a stream: an empty one.
            self.exchange.send_status(200, EVENTS, b"", self._fields(200))
        else:
            self.events.end()


def _refusal(error: NaiadError) -> _Response:
    return error.http_status if error.retryable else 400, _error_json(caller_text(error))


def _error_json(text: str) -> bytes:
    return orjson.dumps({"error": text})


_NONE: Final[_Response] = (200, _error_json(_NOT_ONE))
"""The response where the model sent none."""


class _GenerateHandler:
    """Handles the requests for one model name and version, each as one of the class ``_kind``."""

    __slots__ = ("__weakref__", "_engine", "_json_work", "_name", "_planner", "_version")

    _kind: type[_WholeRequest | _StreamedRequest]

    def __init__(self, services: RouteServices, name: str, version: str | None) -> None:
        self._engine = services.engine
        self._json_work = services.json_work
        self._name = name
        self._version = version
        self._planner: Planner[BinaryPlan] | None = None
        services.engine.follow(self)

    def forget(self, model: ServingModel) -> None:
        """Drop a model that is being unloaded."""
        if self._planner is not None and self._planner.model is model:
            self._planner = None

    def __call__(self, exchange: Exchange, body: Body) -> None:
        received_ns = monotonic_ns()
        try:
            model = self._engine.find(self._name, self._version)
            if exchange.head.headers.get("content-encoding", "identity").lower() not in ("", "identity"):
                raise InvalidArgumentError("Unsupported content-encoding, only 'identity' is supported.")
            model.check_room(len(body))
            if is_large_json(body, MANY_TO_GENERATE):
                self._read_later(exchange, model, body, received_ns)
                return
            header = read_generate(body, model.spec.inputs)
            plan = self._plan(model, header, {})
            inputs = {given.name: decode_data(given, model.spec.name, header.id) for given in header.inputs}
            self._submit(exchange, model, plan, inputs, header.id, received_ns, len(body))
        except NaiadError as error:
            retry, fail = partial(self, exchange, body), partial(self._refuse, exchange, body)
            if not wait_for_model(self._engine.demand, error, len(body), exchange, retry, fail):
                fail(error)

    def _refuse(self, exchange: Exchange, body: Body, error: NaiadError) -> None:
        """Answer a request that did not reach its model."""
        request_id = id_of(exchange.owner)
        # A server without room must not spend time on what it refuses.
        if not request_id and not isinstance(error, QueueFullError):
            request_id = id_in_json(body, None)
        log_refusal(error, request_id, self._name)
        send_error(exchange, error, request_id=request_id)

    def _read_later(self, exchange: Exchange, model: ServingModel, body: Body, received_ns: int) -> None:
        """Have large JSON read in a worker, then submit the request."""

        def done(content: memoryview, description_bytes: int, error: NaiadError | None) -> None:
            # Here nothing counts the exchange until its response: this endpoint decompresses no bodies.
            if exchange.closed():
                return
            try:
                if error is not None:
                    raise error
                # Found again: the model may have been loaded anew meanwhile.
                model = self._engine.find(self._name, self._version)
                header, offsets = unpack_generate(content[:description_bytes])
                plan = self._plan(model, header, offsets)
                inputs = plan.views(content, description_bytes)
                inputs |= _read_texts(header, model.spec, content[description_bytes:], offsets)
                self._submit(exchange, model, plan, inputs, header.id, received_ns, len(content))
            except NaiadError as wrong:
                self._refuse(exchange, body, wrong)
            except Exception:
                handler_failed(exchange)

        self._json_work.read_generate(body, model.spec.inputs, done)

    def _plan(self, model: ServingModel, header: InferHeader, offsets: Mapping[str, int]) -> BinaryPlan:
        planner = self._planner
        if planner is None or planner.model is not model:
            planner = self._planner = Planner(model, BinaryPlan)
        return planner.plan(header, offsets)

    def _submit(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
        body_bytes: int,
    ) -> None:
        request = self._kind(exchange, model, plan, inputs, request_id, received_ns, self._json_work)
        request.held_bytes = max(body_bytes, memory_of(inputs))
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        exchange.owner = request
        if plan.is_special and (late := unvalidated_strings(request, model.spec)) is not None:
            request.submit_deferred(late)
        else:
            model.submit(request)


def _read_texts(
    header: InferHeader, spec: ModelSpec, tensors: memoryview, offsets: Mapping[str, int]
) -> dict[str, Array]:
    """The BYTES inputs, which are not plain views of the body."""
    return {
        given.name: read_bytes(given, spec, tensors[at : at + (given.binary_size or 0)], header.id)
        for given in header.inputs
        if given.dtype.is_bytes
        for at in (offsets[given.name],)
    }


class GenerateHandler(_GenerateHandler):
    """Answers each request with the one response of the model."""

    __slots__ = ()
    _kind = _WholeRequest


class GenerateStreamHandler(_GenerateHandler):
    """Answers each request with an event for every response of the model."""

    __slots__ = ()
    _kind = _StreamedRequest
