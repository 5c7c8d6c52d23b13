"""``POST /v2/models/{model}[/versions/{version}]/generate`` and ``.../generate_stream``.

Both take a flat JSON object. The first gives the one response back as such an object, the second sends every response
as a server-sent event as soon as the model has it. Decoupled models and others are served by both.

Source: protocol section "Generate Extension" and recorded answers: the first response decides on the status, which is
400 for an error of the model whatever its code (here 503 or 504 where a retry can help), and an error in the middle of
a stream is one event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Final, cast

import orjson

from naiad.config.spec import ModelSpec
from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, NaiadError, ResponseBacklogError, caller_text
from naiad.execution.model import LoadedModel
from naiad.execution.serving import ServingModel
from naiad.frontends.http.answers import JSON, RETRY_AFTER, handler_failed, send_error
from naiad.frontends.http.endpoint_load import load_fields
from naiad.frontends.http.exchange import Exchange
from naiad.frontends.http.infer_read import Body
from naiad.frontends.http.json_work import MANY_TO_GENERATE, is_large_json
from naiad.frontends.http.streamed import StreamedAnswer
from naiad.frontends.http.waiting import refuse_or_wait
from naiad.frontends.late_inputs import late_strings, submit_when_read
from naiad.frontends.planning import Planner, read_bytes
from naiad.request import Array, InferRequest, Recipient, request_label
from naiad.scheduling.patience import PATIENCE_MS
from naiad.wire.generate import encode_generated, read_generate
from naiad.wire.generate_packed import unpack_generate
from naiad.wire.infer_binary import BinaryPlan
from naiad.wire.infer_header import InferHeader
from naiad.wire.infer_json import decode_data

EVENTS: Final = "text/event-stream; charset=utf-8"
_NOT_ONE: Final = (
    "generate expects model to produce exactly 1 response, use generate stream for model that generates various number "
    "of responses"
)


class _GenerateRequest(InferRequest):
    """A request that answers on its exchange.

    Attributes:
        first: status and body of the only response that came so far, where the answer is one response.
        events: the answer, where it is a stream that has begun.
        is_over: the answer is complete; what still comes is dropped.
        is_held: the model was asked to make no more for now.
    """

    __slots__ = ("events", "exchange", "first", "is_held", "is_over", "model", "plan")
    carrier = "HTTP"

    def __init__(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
    ) -> None:
        super().__init__(plan, inputs, request_id, received_ns, monotonic_ns())
        self.exchange = exchange
        self.model = model
        self.plan = plan
        self.first: tuple[int, bytes] | None = None
        self.events: StreamedAnswer | None = None
        self.is_over = self.is_held = False

    def aim(self, recipient: Recipient) -> None:
        """Another version answers, which the answer says."""
        self.model = cast(ServingModel, recipient)
        self.plan = self.terms = self.plan.of_version(recipient.version)

    def cancel(self) -> None:
        """The caller is gone: leave the queue, or tell the model."""
        self.is_over = self.exchange.closed()
        self.model.cancel(self)

    def headers(self) -> Mapping[str, str]:
        return self.exchange.head.headers

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.respond_part(outputs if error is None else None, error, True)

    def _fields(self, status: int) -> Sequence[tuple[str, str]]:
        """What the head of the answer says beside the status: also how loaded the model is, for callers that ask."""
        model = self.model
        load = load_fields(self.exchange.head.headers, model) if isinstance(model, LoadedModel) else ()
        return (RETRY_AFTER, *load) if status in (429, 503) else load

    def _encode(self, outputs: Mapping[str, Array] | None, error: NaiadError | None) -> tuple[int, bytes]:
        """A response with the status that it has as the first one."""
        if error is None:
            plan = self.plan
            try:
                return 200, encode_generated(plan.model, plan.version, self.id, outputs or {}, plan.dtypes)
            except NaiadError as unsendable:
                error = unsendable
        return error.http_status if error.retryable else 400, _error_json(caller_text(error))


class _WholeRequest(_GenerateRequest):
    """A request whose one response is the answer."""

    __slots__ = ()

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            return
        if outputs is not None or error is not None:
            if self.first is not None:
                self._answer(self.first[0], _error_json(_NOT_ONE))
                if not final:
                    self.model.cancel(self)
                return
            self.first = self._encode(outputs, error)
        if final:
            self._answer(*(self.first or (200, _error_json(_NOT_ONE))))

    def _answer(self, status: int, body: bytes) -> None:
        self.is_over = True
        self.exchange.send_status(status, JSON, body, self._fields(status))


class _StreamedRequest(_GenerateRequest):
    """A request of which every response is an event."""

    __slots__ = ()

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            return
        if outputs is not None or error is not None:
            if self.events is not None and self.events.is_full:
                self._give_up(self.events, final)
                return
            status, body = self._encode(outputs, error)
            if self.events is None:
                self.events = StreamedAnswer(self.exchange, status, EVENTS, self._fields(status))
            self.events.send(_event(body))
            if not final and self.events.is_behind and not self.is_held:
                self.is_held = True
                self.events.when_taken(self._go_on)
                self.model.hold(self, PATIENCE_MS)
        if final:
            self._end()

    def _go_on(self) -> None:
        """The caller took the events that waited."""
        self.is_held = False
        if not self.is_over:
            self.model.go_on(self)

    def _give_up(self, events: StreamedAnswer, final: bool) -> None:
        """The caller does not take the events as fast as they come, and they cannot all be kept."""
        error = ResponseBacklogError(
            f"{request_label(self.id)}the responses come faster than they are taken: too many wait, so the request was "
            "cancelled"
        )
        events.send(_event(_error_json(caller_text(error))))
        self._end()
        if not final:
            self.model.cancel(self)

    def _end(self) -> None:
        self.is_over = True
        if self.events is None:
            self.exchange.send_status(200, EVENTS, b"", self._fields(200))
        else:
            self.events.end()


def _event(body: bytes) -> bytes:
    return b"data: %b\n\n" % body


def _error_json(text: str) -> bytes:
    return orjson.dumps({"error": text})


class _GenerateHandler:
    """Handles the requests for one model name and version, each as one of the class ``_kind``."""

    __slots__ = ("__weakref__", "_engine", "_name", "_planner", "_version")

    _kind: type[_WholeRequest | _StreamedRequest]

    def __init__(self, engine: Engine, name: str, version: str | None) -> None:
        self._engine = engine
        self._name = name
        self._version = version
        self._planner: Planner[BinaryPlan] | None = None
        engine.follow(self)

    def forget(self, model: ServingModel) -> None:
        """Let go of a model that is being unloaded."""
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
            refuse_or_wait(self._engine, exchange, body, error, self)

    def _read_later(self, exchange: Exchange, model: ServingModel, body: Body, received_ns: int) -> None:
        """Have large JSON read elsewhere."""

        def done(content: memoryview, description_bytes: int, error: NaiadError | None) -> None:
            if exchange.closed():
                return
            try:
                if error is not None:
                    raise error
                model = self._engine.find(self._name, self._version)
                header, offsets = unpack_generate(content[:description_bytes])
                plan = self._plan(model, header, offsets)
                inputs = plan.views(content, description_bytes)
                inputs |= _read_texts(header, model.spec, content[description_bytes:], offsets)
                self._submit(exchange, model, plan, inputs, header.id, received_ns, len(content))
            except NaiadError as wrong:
                send_error(exchange, wrong)
            except Exception:
                handler_failed(exchange)

        exchange.json_work.read_generate(body, model.spec.inputs, done)

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
        request = self._kind(exchange, model, plan, inputs, request_id, received_ns)
        request.held_bytes = max(body_bytes, request.held_bytes)
        exchange.owner = request
        if plan.is_special and (late := late_strings(request, model.spec)) is not None:
            submit_when_read(request, model, late, lambda: not exchange.closed())
        else:
            model.submit(request)


def _read_texts(
    header: InferHeader, spec: ModelSpec, tensors: memoryview, offsets: Mapping[str, int]
) -> dict[str, Array]:
    """The inputs of BYTES, which are no views of what was received."""
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
