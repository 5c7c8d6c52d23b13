"""``POST /v2/models/{model}[/versions/{version}]/infer``: a body becomes a request, outputs become a response.

The hot path of the server. A request whose inputs are all binary and whose JSON part was seen before costs a look-up,
the views and a queue push. A request with its data in JSON costs the parsing of the data where the text around them was
seen before; every other request is read and validated in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic_ns

import orjson

from naiad.errors import CancelledError, NaiadError, QueueFullError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.json_worker.pool import (
    LARGE_JSON_BYTES,
    LARGE_OUTPUT_BYTES,
    MANY_VALUES_BYTES,
    TURN_JSON_BYTES,
    TURN_OUTPUT_BYTES,
    is_large_json,
    weight_in_json,
)
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, TEXT, handler_failed, send_error
from naiad.frontends.http.v2.body_parts import LENGTH_HEADER
from naiad.frontends.http.v2.http_request import HttpClientRequest
from naiad.frontends.http.v2.infer_reader import DecoupledModelError, HeaderSizeError, RequestReader
from naiad.frontends.http.v2.route_table import InferenceServices
from naiad.frontends.inference.classification import classify_off_loop
from naiad.frontends.inference.deferred_inputs import unvalidated_strings
from naiad.frontends.inference.header_forwarding import AddedParameters
from naiad.frontends.inference.model_wait import wait_for_model
from naiad.frontends.inference.refusals import id_in_json, id_of, log_refusal
from naiad.frontends.inference.shared_memory_io import open_regions
from naiad.request import Array, Outputs, Parameters, memory_of
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.tensor_ref import RegionUse
from naiad.tensor.bytes_codec import Raw
from naiad.wire.http1.head import encode_head
from naiad.wire.v2.binary import BinaryPlan, split_id
from naiad.wire.v2.classification import Classes, Classified, LargeClassesError, UnclassifiableError
from naiad.wire.v2.json_template import Recalled
from naiad.wire.v2.parameters import parameters_of
from naiad.wire.v2.plan import MAX_PLAN_KEY, PlanMemo
from naiad.wire.v2.response import OutputPart, datatype_of, encode_response, tensor_bytes
from naiad.wire.v2.sequence_plan import SequencePlans, cut_json
from naiad.worker.ipc.arena import Arena

MAX_LOOKED_UP = 65536
"""Longer descriptions are not looked up: no plan is cached for them, whatever their ids."""
_IN_ONE_WRITE = 65536
_AS_TEXT = (DecoupledModelError, HeaderSizeError, UnclassifiableError)
"""Errors that the reference finds outside of its validation of the request, and so sends as text."""


class HttpInferRequest(HttpClientRequest):
    """A request with one response, which its plan encodes."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            send_error(self.exchange, error, TEXT)
            return
        plan = self.plan
        # ``Outputs`` has parameters of the response, which the encoded beginnings of plans do not have.
        if not plan.plain or type(outputs) is Outputs:
            if not (plan.in_json and type(outputs) is dict and self._send_numbers(outputs)):
                self._send_any(outputs)
            return
        try:
            self.exchange.send(plan.encode_response(self.id, outputs))
        except (BufferError, KeyError, TypeError, ValueError):
            # Not checked before, to save time: an output may be missing, or not be one row-major block.
            self._send_any(outputs)

    def refuse(self, error: NaiadError) -> None:
        send_error(self.exchange, error)

    def _send_numbers(self, outputs: Mapping[str, Array]) -> bool:
        """Answer with JSON alone; False where the outputs do not fit the fast path."""
        response = self.plan.encode_json_response(self.id, outputs, TURN_OUTPUT_BYTES)
        if response is None:
            return False
        self.exchange.send(response)
        return True

    def _send_any(self, outputs: Mapping[str, Array]) -> None:
        plan = self.plan
        if plan.classes is not None and not isinstance(outputs, Classified):
            self._send_classes(plan.classes, outputs)
            return
        parts = [
            OutputPart(
                name,
                datatype_of(outputs[name], plan.dtypes[name]),
                outputs[name],
                plan.binary[name] and name not in plan.placed,
                name in plan.placed,
                name in plan.base64,
            )
            for name in plan.outputs
            if name in outputs
        ]
        parameters = parameters_of(outputs)
        # Writing the numbers of large outputs as text would hold the loop up.
        weight = sum(weight_in_json(part.array, part.dtype, part.base64) for part in parts if part.in_json)
        if weight < TURN_OUTPUT_BYTES:
            self._write(parts, parameters)
        elif weight < LARGE_OUTPUT_BYTES:
            self.json_work.in_turn(weight, partial(self._write_in_turn, parts, parameters))
        else:
            self._send_later(parts, parameters)

    def _write_in_turn(self, parts: list[OutputPart], parameters: Parameters) -> None:
        try:
            self._write(parts, parameters)
        except Exception:
            handler_failed(self.exchange)

    def _write(self, parts: list[OutputPart], parameters: Parameters) -> None:
        plan = self.plan
        try:
            json, tensors, _ = encode_response(plan.model, plan.version, self.id, parts, parameters)
        except NaiadError as error:
            send_error(self.exchange, error, TEXT)
            return
        self._send(json, tensors, any(part.binary for part in parts))

    def _send_later(self, parts: list[OutputPart], parameters: Parameters) -> None:
        """Have large JSON written in another process, then send the response."""

        def done(json: memoryview, _: int, error: NaiadError | None) -> None:
            if error is not None:
                send_error(self.exchange, error, TEXT)
            else:
                tensors = [tensor_bytes(part.array, part.dtype) for part in parts if part.binary]
                self._send(json, tensors, bool(tensors))

        self.json_work.write(self.plan.model, self.plan.version, self.id, parts, parameters, done)

    def _send(self, json: bytes | memoryview, tensors: list[Raw], is_binary: bool) -> None:
        if not is_binary:
            head = encode_head(200, JSON, len(json), ())
            self.exchange.send(head + json if len(json) < _IN_ONE_WRITE else [head, json])
            return
        extra = ((LENGTH_HEADER, str(len(json))),)
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
            classify_off_loop(self, self.model.budget, large)
        except NaiadError as error:
            send_error(self.exchange, error, TEXT)


class EscapedIdRequest(HttpInferRequest):
    """A request whose id needs escapes in JSON: plans put ids into responses unescaped."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            send_error(self.exchange, error, TEXT)
        else:
            self._send_any(outputs)


class HttpRegionRequest(HttpInferRequest):
    """A request with tensors in regions of the client."""

    __slots__ = ("_io", "use")
    use: RegionUse

    def open(self, registry: RegionRegistry) -> None:
        """Look up its regions; errors as ``open_regions``."""
        self._io = io = open_regions(self, registry, self.model)
        self.use = io.use

    def submit(self) -> None:
        """Submit it to its model, after the inputs that the model does not read itself."""
        self._io.submit(self)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self._io.respond(self, outputs, error, HttpRegionRequest._send_response)

    def _send_response(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None:
            send_error(self.exchange, error, TEXT)
        elif type(outputs) is dict and (response := self.plan.encode_placed_response(self.id, outputs)) is not None:
            self.exchange.send(response)
        else:
            self._send_any(outputs)


class HttpInferHandler:
    """Handles the inference requests for one model name and version.

    Besides the memo of plans it caches the last JSON part, id included: for callers that send no id, or always the same
    one, neither the id is cut out nor a plan looked up.
    """

    __slots__ = (
        "__weakref__", "_engine", "_json_work", "_knows_regions", "_last_header", "_last_id", "_last_plan", "_memo",
        "_model", "_name", "_reader", "_sequences", "_version",
    )  # fmt: skip

    def __init__(self, services: InferenceServices, name: str, version: str | None) -> None:
        self._engine = services.engine
        self._json_work = services.json_work
        self._name = name
        self._version = version
        self._model: ServingModel | None = None
        services.engine.follow(self)

    def forwarding(self, headers: Mapping[str, str]) -> Handler:
        """This handler for requests that get ``headers`` as parameters. All of them share the cached plans."""
        return partial(self, added=AddedParameters(headers))

    def forget(self, model: ServingModel) -> None:
        """Drop a model that is being unloaded."""
        if model is self._model:
            self._model = None
            # Deleted, not set to None: the fast path then needs no test, since ``_begin`` runs before each new model.
            del self._reader, self._memo, self._sequences, self._last_plan

    def arena(self) -> Arena | None:
        """Where the body of the next request is to be received; None for any memory."""
        return None if self._model is None else self._model.arena

    def _begin(self, reader: RequestReader) -> None:
        """Start with empty caches: plans and memos belong to one loaded model."""
        self._reader = reader
        self._memo = PlanMemo[BinaryPlan]()
        # None until the first request of a sequence, so that other models pay one test.
        self._sequences: SequencePlans[BinaryPlan] | None = None
        self._knows_regions = False
        self._last_header = b""
        self._last_id = ""
        self._last_plan: BinaryPlan | None = None

    def __call__(self, exchange: Exchange, body: Body, added: AddedParameters | None = None) -> None:
        received_ns = monotonic_ns()
        try:
            model = self._engine.find(self._name, self._version)
        except NaiadError as error:
            again = self if added is None else partial(self, added=added)
            size = exchange.head.first_part_bytes
            retry, fail = partial(again, exchange, body), partial(self._refuse, exchange, body, size, JSON)
            if not wait_for_model(self._engine.demand, error, len(body), exchange, retry, fail):
                self._refuse(exchange, body, size, TEXT, error)
            return
        # By identity: a model that was loaded again may have other inputs, and shares no plan with its predecessor.
        if model is not self._model:
            self._model = model
            self._begin(RequestReader(model))
        size = exchange.head.first_part_bytes
        try:
            # 0 stands for a raw tensor. A length beyond the body is an error, whatever the body holds.
            if size is None or not 0 < size < len(body):
                _submit(self._read_description(exchange, model, body, size, received_ns, added), added)
                return
            # One comparison costs less than cutting the id out and hashing the rest.
            if body[:size] == self._last_header:
                plan = self._last_plan
            else:
                plan = self._look_up(bytes(body[:size])) if size <= MAX_LOOKED_UP else None
            # A known plan of another size: the request is wrong, or some of its tensors lie in regions.
            if plan is None or plan.size != len(body) - size:
                _submit(self._read_with_tensors(exchange, model, plan, body, size, received_ns, added), added)
                return
            # The fast path, written out: a known description, and exactly its tensors behind it.
            inputs = plan.views(body, size)
            request = HttpInferRequest(exchange, model, plan, inputs, self._last_id, received_ns, self._json_work)
            if added is not None:
                request.plan = request.options = added.added_to(request.plan)
            # Before the submission: an inline model responds within ``submit``, which drops the owner again.
            exchange.owner = request
            model.submit(request)
        except NaiadError as error:
            self._refuse(exchange, body, size, _content_type(error), error)

    def _read_description(
        self,
        exchange: Exchange,
        model: ServingModel,
        body: Body,
        size: int | None,
        received_ns: int,
        added: AddedParameters | None,
    ) -> HttpInferRequest | None:
        """The request of a body without tensors behind JSON: JSON alone, or with ``size`` 0 a raw tensor.

        In this order: large JSON goes to a worker, and JSON of some size takes turns (None: it is submitted later), a
        known description whose tensors all lie in regions, a known text around the data, or the full reading.
        """
        # Before any parsing: a request without room must cost little.
        model.check_room(len(body))
        is_json_alone = size is None or size == len(body)
        if is_json_alone and isinstance(body, memoryview) and len(body) < LARGE_JSON_BYTES:
            # Copied once for all that searches it. A worker gets a longer one as it is.
            body = bytes(body)
        if is_json_alone and is_large_json(body):
            self._read_later(exchange, model, body, size, received_ns, added)
            return None
        if is_json_alone and len(body) >= TURN_JSON_BYTES:
            _check(model)
            read = partial(self._read_or_recall, exchange, body, size, received_ns)
            self._json_work.in_turn(len(body), partial(self._resume, exchange, body, size, read, added))
            return None
        return self._read_or_recall(exchange, body, size, received_ns, model)

    def _read_or_recall(
        self, exchange: Exchange, body: Body, size: int | None, received_ns: int, model: ServingModel
    ) -> HttpInferRequest:
        is_json_alone = size is None or size == len(body)
        if self._knows_regions and (known := self._recall(exchange, model, body, received_ns)) is not None:
            return known
        if is_json_alone and (found := self._reader.recall(body)) is not None:
            return self._recalled(exchange, model, found, received_ns)
        return self._read(exchange, model, body, None, received_ns, size)

    def _read_with_tensors(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan | None,
        body: Body,
        size: int,
        received_ns: int,
        added: AddedParameters | None,
    ) -> HttpInferRequest | None:
        """The request of a body with tensors behind its JSON that is off the fast path; ``plan`` is None if unknown.

        In this order: a known description with some tensors in regions, large JSON, which goes to a worker (None: it is
        submitted later), or the full reading.
        """
        if plan is not None and plan.regions is not None and plan.data_bytes == len(body) - size:
            inputs = plan.views(body, size)
            return self._with_regions(exchange, model, plan, inputs, self._last_id, received_ns)
        if plan is None:
            model.check_room(len(body))
        if size >= MANY_VALUES_BYTES and is_large_json(memoryview(body)[:size]):
            self._read_later(exchange, model, body, size, received_ns, added)
            return None
        return self._read(exchange, model, body, size, received_ns, size)

    def _read_later(
        self,
        exchange: Exchange,
        model: ServingModel,
        body: Body,
        size: int | None,
        received_ns: int,
        added: AddedParameters | None,
    ) -> None:
        """Have large JSON read in a worker, then resume the same request with binary data."""
        _check(model)

        def done(body: memoryview, json_bytes: int, error: NaiadError | None) -> None:
            def read(model: ServingModel) -> HttpInferRequest:
                if error is not None:
                    raise error
                return self._read(exchange, model, body, None, received_ns, json_bytes)

            self._resume(exchange, body, json_bytes, read, added)

        self._json_work.read(body, size, done)

    def _resume(
        self,
        exchange: Exchange,
        body: Body,
        size: int | None,
        read: Callable[[ServingModel], HttpInferRequest],
        added: AddedParameters | None,
    ) -> None:
        """Read and submit a request that has waited for it; ``size``: of the JSON part of its body."""
        try:
            if exchange.closed():
                # Nobody reads this, but the exchange may be counted (``_CountedExchange``) until its response.
                raise CancelledError("the request was cancelled by its caller")
            # Found again: the model may have been loaded anew meanwhile.
            model = self._engine.find(self._name, self._version)
            if model is not self._model:
                self._model = model
                self._begin(RequestReader(model))
            _submit(read(model), added)
        except NaiadError as wrong:
            self._refuse(exchange, body, size, _content_type(wrong), wrong)
        except Exception:
            handler_failed(exchange)

    def _refuse(self, exchange: Exchange, body: Body, size: int | None, content_type: str, error: NaiadError) -> None:
        """Answer a request that did not reach its model; ``size``: of its JSON part."""
        request_id = id_of(exchange.owner)
        # A server without room must not spend time on what it refuses.
        if not request_id and not isinstance(error, QueueFullError):
            request_id = id_in_json(body, size)
        log_refusal(error, request_id, self._name)
        send_error(exchange, error, content_type, request_id=request_id)

    def _look_up(self, header: bytes) -> BinaryPlan | None:
        self._last_id, key = split_id(header)
        # A longer description has no cached plan, so it is not worth keeping.
        self._last_header = header if len(header) <= MAX_PLAN_KEY else b""
        plan = self._memo.get(key)
        if plan is None and self._sequences is not None and (found := self._sequences.find(key)) is not None:
            # A plan of another sequence with the number exchanged, and cached: more requests of this sequence follow.
            plan = found[0].in_sequence(found[1])
            self._memo.keep(key, plan)
        self._last_plan = plan
        return plan

    def _read(
        self,
        exchange: Exchange,
        model: ServingModel,
        body: Body,
        size: int | None,
        received_ns: int,
        header_length: int | None,
    ) -> HttpInferRequest:
        """Read and validate a request in full; cache its plan if its inputs are all binary and ``size`` is given."""
        _check(model)
        request_id, plan, inputs = self._reader.read(body, header_length)
        regions = plan.regions
        if regions is not None and header_length in (None, len(body)) and len(body) <= MAX_PLAN_KEY:
            # The whole body is the description: its tensors lie in regions.
            size = len(body)
        if size is not None and len(plan.inputs) == len(inputs):
            key = split_id(bytes(body[:size]))[1]
            # A second id in the rest would win over the first, and escapes can write its key in many ways.
            if b'"id"' not in key and b"\\" not in key:
                self._memo.keep(key, plan)
                # It was looked up without success: look it up again, now that its plan is cached.
                self._last_header = b""
                if plan.correlation_id:
                    self._sequences = self._sequences or SequencePlans(cut_json)
                    self._sequences.keep(key, plan, plan.correlation_id)
                self._knows_regions = self._knows_regions or regions is not None
        if regions is not None:
            return self._with_regions(exchange, model, plan, inputs, request_id, received_ns)
        plain_id = not request_id or _is_plain(request_id)
        kind = HttpInferRequest if plain_id else EscapedIdRequest
        request = kind(exchange, model, plan, inputs, request_id, received_ns, self._json_work)
        # The views keep the whole body alive, of which the JSON part may be the most.
        request.held_bytes = max(len(body), memory_of(inputs))
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        return request

    def _recall(
        self, exchange: Exchange, model: ServingModel, body: Body, received_ns: int
    ) -> HttpRegionRequest | None:
        """A request that consists of a known description only; None otherwise."""
        if len(body) > MAX_PLAN_KEY:
            return None
        raw = bytes(body)
        if raw == self._last_header:
            request_id, plan = self._last_id, self._last_plan
        else:
            plan = self._look_up(raw)
            request_id = self._last_id
        if plan is None or plan.regions is None or plan.data_bytes:
            return None
        return self._with_regions(exchange, model, plan, {}, request_id, received_ns)

    def _recalled(self, exchange: Exchange, model: ServingModel, found: Recalled, received_ns: int) -> HttpInferRequest:
        """The request of a body whose text around the data is known."""
        request = HttpInferRequest(exchange, model, found.plan, found.inputs, found.id, received_ns, self._json_work)
        request.held_bytes = found.held_bytes
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        return request

    def _with_regions(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan,
        inputs: dict[str, Array],
        request_id: str,
        received_ns: int,
    ) -> HttpRegionRequest:
        request = HttpRegionRequest(exchange, model, plan, inputs, request_id, received_ns, self._json_work)
        request.open(self._engine.regions)
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        return request


def _submit(request: HttpInferRequest | None, added: AddedParameters | None) -> None:
    """Submit a request that left the fast path; None stands for one that a worker still reads."""
    if request is None:
        return
    if added is not None:
        request.plan = request.options = added.added_to(request.plan)
    request.exchange.owner = request
    if isinstance(request, HttpRegionRequest):
        request.submit()
    elif request.plan.is_special and (late := unvalidated_strings(request, request.model.spec)) is not None:
        request.submit_deferred(late)
    else:
        request.model.submit(request)


def _is_plain(request_id: str) -> bool:
    """Whether an id needs no escapes in JSON; a long id counts as if it did."""
    return len(request_id) <= MAX_PLAN_KEY and orjson.dumps(request_id)[1:-1] == request_id.encode()


def _check(model: ServingModel) -> None:
    """Refuse decoupled models, whose number of responses one HTTP response cannot carry."""
    if model.spec.decoupled:
        raise DecoupledModelError("HTTP end point doesn't support models with decoupled transaction policy")


def _content_type(error: NaiadError) -> str:
    return TEXT if isinstance(error, _AS_TEXT) else JSON
