"""``POST /v2/models/{model}[/versions/{version}]/infer``: a body becomes a request, outputs become an answer.

The hot path of the server. A request whose inputs are all binary and whose JSON part was seen before costs a look-up,
the views and a queue push; everything else is read and checked in full.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns

import orjson

from naiad.engine.engine import Engine
from naiad.errors import NaiadError, NotFoundError
from naiad.execution.serving import ServingModel
from naiad.frontends.classifying import classify_off_loop
from naiad.frontends.http.answers import JSON, TEXT, send_error
from naiad.frontends.http.infer_read import NO_HEADERS, Body, DecoupledModelError, RequestReader
from naiad.frontends.http.json_work import LARGE_JSON_BYTES, LARGE_OUTPUT_BYTES
from naiad.frontends.http.protocol import Exchange
from naiad.frontends.http.waiting import refuse_or_wait
from naiad.request import Array, InferRequest, Outputs, Parameters, Recipient
from naiad.wire.http1 import encode_head
from naiad.wire.infer_binary import BinaryPlan, split_id
from naiad.wire.infer_classes import Classes, Classified, LargeClassesError
from naiad.wire.infer_parameters import parameters_of
from naiad.wire.infer_plan import MAX_PLAN_KEY, PlanMemo
from naiad.wire.infer_response import OutputPart, datatype_of, encode_answer, tensor_bytes

_IN_ONE_WRITE = 65536


class HttpInferRequest(InferRequest):
    """A request that answers on its HTTP exchange, and that the caller can give up."""

    __slots__ = ("exchange", "model", "plan")
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
        # Not through super(): one call less for every request.
        self.exchange = exchange
        self.model: Recipient = model
        self.plan = self.terms = plan
        self.inputs = inputs
        self.id = request_id
        self.received_ns = received_ns
        self.queued_ns = received_ns

    def aim(self, recipient: Recipient) -> None:
        """Another version answers, which the answer says."""
        self.model = recipient
        self.plan = self.terms = self.plan.of_version(recipient.version)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            send_error(self.exchange, error, TEXT)
            return
        plan = self.plan
        if not plan.plain or type(outputs) is Outputs:
            self._send_any(outputs)
            return
        try:
            self.exchange.send(plan.answer(self.id, outputs))
        except (BufferError, KeyError, TypeError, ValueError):
            # An output may be missing, or not one row-major block of memory that can be sent as it lies.
            self._send_any(outputs)

    def cancel(self) -> None:
        """The caller is gone: leave the queue."""
        self.model.cancel(self)

    def _send_any(self, outputs: Mapping[str, Array]) -> None:
        plan = self.plan
        if plan.classes is not None and not isinstance(outputs, Classified):
            self._send_classes(plan.classes, outputs)
            return
        parts = [
            OutputPart(name, datatype_of(outputs[name], plan.dtypes[name]), outputs[name], plan.binary[name])
            for name in plan.outputs
            if name in outputs
        ]
        if sum(part.array.nbytes for part in parts if not part.binary) >= LARGE_OUTPUT_BYTES:
            self._send_later(parts, parameters_of(outputs))
            return
        try:
            json, tensors, _ = encode_answer(plan.model, plan.version, self.id, parts, parameters_of(outputs))
        except NaiadError as error:
            send_error(self.exchange, error, TEXT)
            return
        self._send(json, tensors, any(part.binary for part in parts))

    def _send_later(self, parts: list[OutputPart], parameters: Parameters) -> None:
        """Have large JSON written elsewhere."""

        def done(json: memoryview, _: int, error: NaiadError | None) -> None:
            if error is not None:
                send_error(self.exchange, error, TEXT)
            else:
                tensors = [tensor_bytes(part.array, part.dtype) for part in parts if part.binary]
                self._send(json, tensors, bool(tensors))

        self.exchange.json_work.write(self.plan.model, self.plan.version, self.id, parts, parameters, done)

    def _send(self, json: bytes | memoryview, tensors: list[bytes | memoryview], is_binary: bool) -> None:
        if not is_binary:
            head = encode_head(200, JSON, len(json), ())
            self.exchange.send(head + json if len(json) < _IN_ONE_WRITE else [head, json])
            return
        extra = (("Inference-Header-Content-Length", str(len(json))),)
        length = len(json) + sum(len(t) for t in tensors)
        head = encode_head(200, "application/octet-stream", length, extra)
        if length < _IN_ONE_WRITE:
            self.exchange.send(b"".join([head, json, *tensors]))
        else:
            self.exchange.send([head, json, *tensors])

    def _send_classes(self, classes: Classes, outputs: Mapping[str, Array]) -> None:
        try:
            self._send_any(classes.apply(outputs))
        except LargeClassesError as large:
            classify_off_loop(self, large)
        except NaiadError as error:
            send_error(self.exchange, error, TEXT)


class EscapedIdRequest(HttpInferRequest):
    """A request whose id needs escapes in JSON; the fast way would put it into the answer as it is."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            send_error(self.exchange, error, TEXT)
        else:
            self._send_any(outputs)


class InferHandler:
    """Handles the inference requests for one model name and version.

    Besides the memo of plans it remembers the last JSON part as it came, id included: callers that send no id, or
    always the same, need neither the id cut out nor the look-up.
    """

    __slots__ = (
        "__weakref__", "_engine", "_forwarded", "_last_header", "_last_id", "_last_plan", "_memo", "_model", "_name",
        "_reader", "_version",
    )  # fmt: skip

    def __init__(
        self, engine: Engine, name: str, version: str | None, forwarded: Mapping[str, str] = NO_HEADERS
    ) -> None:
        self._engine = engine
        self._forwarded = forwarded
        self._name = name
        self._version = version
        self._model: ServingModel | None = None
        engine.follow(self)

    def forwarding(self, headers: Mapping[str, str]) -> InferHandler:
        """The same for requests that get ``headers`` as parameters."""
        return InferHandler(self._engine, self._name, self._version, headers)

    def forget(self, model: ServingModel) -> None:
        """Let go of a model that is being unloaded."""
        if model is self._model:
            self._model = None
            del self._reader, self._memo, self._last_plan

    def _begin(self, reader: RequestReader) -> None:
        """Start anew: what was noted holds for one loaded model only."""
        self._reader = reader
        self._memo = PlanMemo[BinaryPlan]()
        self._last_header = b""
        self._last_id = ""
        self._last_plan: BinaryPlan | None = None

    def __call__(self, exchange: Exchange, body: Body) -> None:
        received_ns = monotonic_ns()
        try:
            model = self._engine.find(self._name, self._version)
        except NaiadError as error:
            form = TEXT if isinstance(error, NotFoundError) else JSON
            refuse_or_wait(self._engine, exchange, body, error, self, form)
            return
        if model is not self._model:
            self._model = model
            self._begin(RequestReader(model, self._forwarded))
        size = exchange.head.inference_header_length
        try:
            if size is None or not 0 < size < len(body):
                if len(body) >= LARGE_JSON_BYTES and (size is None or size == len(body)):
                    self._read_later(exchange, model, body, size, received_ns)
                    return
                request = self._read(exchange, model, body, None, received_ns, size)
            else:
                if body[:size] == self._last_header:
                    plan = self._last_plan
                else:
                    plan = self._look_up(bytes(body[:size]))
                if plan is not None and plan.size == len(body) - size:
                    inputs = plan.views(body, size)
                    request = HttpInferRequest(exchange, model, plan, inputs, self._last_id, received_ns)
                elif size >= LARGE_JSON_BYTES:
                    self._read_later(exchange, model, body, size, received_ns)
                    return
                else:
                    request = self._read(exchange, model, body, size, received_ns, size)
            exchange.owner = request
            model.submit(request)
        except NaiadError as error:
            _refuse(exchange, error)

    def _read_later(
        self, exchange: Exchange, model: ServingModel, body: Body, size: int | None, received_ns: int
    ) -> None:
        """Have large JSON read elsewhere, and go on with the same request as binary data."""
        _check(model)

        def done(body: memoryview, json_bytes: int, error: NaiadError | None) -> None:
            if exchange.closed():
                return
            try:
                if error is not None:
                    raise error
                model = self._engine.find(self._name, self._version)
                if model is not self._model:
                    self._model = model
                    self._begin(RequestReader(model, self._forwarded))
                request = self._read(exchange, model, body, None, received_ns, json_bytes)
                exchange.owner = request
                model.submit(request)
            except NaiadError as wrong:
                _refuse(exchange, wrong)

        exchange.json_work.read(body, size, done)

    def _look_up(self, header: bytes) -> BinaryPlan | None:
        self._last_id, key = split_id(header)
        self._last_header = header if len(header) <= MAX_PLAN_KEY else b""
        self._last_plan = self._memo.get(key)
        return self._last_plan

    def _read(
        self,
        exchange: Exchange,
        model: ServingModel,
        body: Body,
        size: int | None,
        received_ns: int,
        header_length: int | None,
    ) -> HttpInferRequest:
        """Read and check a request in full; keep its plan when its inputs are all binary and ``size`` is not None."""
        _check(model)
        request_id, plan, inputs = self._reader.read(body, header_length)
        if size is not None and len(plan.inputs) == len(inputs):
            key = split_id(bytes(body[:size]))[1]
            # A second id in what is left would win over the first; with escapes its key can take many forms.
            if b'"id"' not in key and b"\\" not in key:
                self._memo.keep(key, plan)
                self._last_header = b""
        plain_id = not request_id or orjson.dumps(request_id)[1:-1] == request_id.encode()
        kind = HttpInferRequest if plain_id else EscapedIdRequest
        request = kind(exchange, model, plan, inputs, request_id, received_ns)
        # Reading took a while, and was no wait in a queue.
        request.queued_ns = monotonic_ns()
        return request


def _check(model: ServingModel) -> None:
    """Refuse what is not served."""
    if model.spec.decoupled:
        raise DecoupledModelError("HTTP end point doesn't support models with decoupled transaction policy")


def _refuse(exchange: Exchange, error: NaiadError) -> None:
    send_error(exchange, error, TEXT if isinstance(error, DecoupledModelError) else JSON)
