"""``ModelStreamInfer``: one call, many requests in flight, their responses in the order of the requests.

A decoupled model sends any number of responses to a request. They wait for no other request, and are sent as they come.
Each tells with ``triton_final_response`` whether another one follows; an end without a response is sent only to callers
that asked for it.

Source: the protocol's gRPC section and recorded responses. A failed request gets a response with ``error_message`` and
the call continues, unless the caller's metadata says ``triton_grpc_error: true``: then the first failure ends the call
with its status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic_ns
from typing import Final

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.errors import NaiadError, ResponseBacklogError, caller_text
from naiad.frontends.grpc.rpc.call import Body, Receiver, RpcCall, fail
from naiad.frontends.grpc.v2.infer_reader import (
    Decoded,
    Decoder,
    LongContentsError,
    RequestDecoder,
    UnparsableRequestError,
    read_contents_later,
)
from naiad.frontends.grpc.v2.response_backlog import Backlog
from naiad.frontends.grpc.v2.stream_queue import WaitingMessages
from naiad.frontends.grpc.v2.stream_request import (
    DecoupledRegionRequest,
    DecoupledRequest,
    StreamRegionRequest,
    StreamRequest,
)
from naiad.frontends.inference.classification import classify_off_loop
from naiad.frontends.inference.deferred_inputs import DeferredInputs, unvalidated_strings
from naiad.frontends.inference.refusals import log_refusal
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError
from naiad.options import INT32_MAX
from naiad.request import Array, InferRequest, RequestOptions, request_label
from naiad.scheduling.queue.ordered_release import OrderedRelease
from naiad.shared_memory.registry import RegionRegistry
from naiad.wire.grpc.status import STOPPING, Status
from naiad.wire.v2.classification import LargeClassesError
from naiad.wire.v2.long_contents import ReadContents
from naiad.wire.v2.parameters import FINAL
from naiad.wire.v2.proto import EncodedMessage

MAX_UNANSWERED: Final = 64
"""With this many requests in flight no further ones are read from a caller."""

MAX_DECOUPLED: Final = 1024
"""The same for requests to decoupled models, which may take long and do not wait for each other."""

ENDS_ON_ERROR: Final = "triton_grpc_error"
_NO_OPTIONS: Final = RequestOptions(())


class StreamService:
    """Opens the calls of ``ModelStreamInfer``.

    Args:
        engine: has the models.
        max_waiting: the responses of decoupled models that may wait on a call (``--grpc-max-response-pool-size``).
    """

    def __init__(self, engine: Engine, max_waiting: int = INT32_MAX) -> None:
        self.decoder = RequestDecoder(engine, serves_decoupled=True)
        self._max_waiting = max_waiting
        self._regions = engine.regions

    def open(self, call: RpcCall) -> Receiver:
        """The receiver of a new call's requests."""
        return self.open_with(call, self.decoder)

    def open_with(self, call: RpcCall, decoder: Decoder) -> Receiver:
        """``open``, with messages that ``decoder`` reads."""
        return InferStream(call, decoder, self._max_waiting, self._regions)


class InferStream:
    """One call.

    A request has its place in ``_places`` until its response is sent, and is in ``_running`` until its model responds.
    Requests to decoupled models have no place; ``_decoupled`` is their number in flight.
    """

    __slots__ = (
        "_backlog",
        "_call",
        "_decoder",
        "_decoupled",
        "_ended",
        "_ends_on_error",
        "_paused",
        "_places",
        "_refused",
        "_regions",
        "_running",
        "_stops",
        "_waiting",
    )

    def __init__(self, call: RpcCall, decoder: Decoder, max_waiting: int, regions: RegionRegistry) -> None:
        self._call = call
        self._regions = regions
        self._backlog = Backlog(call, max_waiting)
        self._decoupled = 0
        self._decoder = decoder
        self._places = OrderedRelease()
        self._running: dict[StreamRequest, None] = {}
        self._ends_on_error = call.metadata.get(ENDS_ON_ERROR) == "true"
        self._paused = False
        self._ended = False
        self._refused = False
        self._stops = False
        self._waiting: WaitingMessages | None = None
        call.on_drained = self._drained

    @property
    def metadata(self) -> Mapping[str, str]:
        """Of the call."""
        return self._call.metadata

    # Called for the caller

    def receive(self, message: Body) -> None:
        """Submit a request to its model, or respond in its place with the error."""
        if self._refused:
            return
        if self._waiting is not None and self._waiting.takes(message):
            return
        received_ns = monotonic_ns()
        try:
            found = self._decoder.recall(message) or self._decoder.read(message)
            if found[1].is_special:
                self._receive_specially(found, received_ns, len(message))
            else:
                # As there, but without a further call for every request.
                kind = DecoupledRequest if found[0].spec.decoupled else StreamRequest
                request = kind(self, *found, received_ns)
                # The inputs are views, which keep the whole message alive.
                request.held_bytes = max(len(message), request.held_bytes)
                if isinstance(request, DecoupledRequest):
                    self._submit_decoupled(request)
                else:
                    self._submit(request)
        except LongContentsError as long:
            self._read_later(message, received_ns, long)
        except NaiadError as error:
            self._not_read(error, message)
        # After the request: a message that was already received is never dropped.
        if not self._paused and self._is_full():
            self._paused = True
            self._call.pause()

    def _not_read(self, error: NaiadError, message: Body) -> None:
        """Respond, in its place, to a message that did not become a request."""
        if isinstance(error, UnparsableRequestError):
            # No message behind it is read: the call ends with this error, after the earlier responses.
            self._refused = True
            self._respond_at_once(partial(self._end_with, error))
        elif isinstance(error, ModelNotLoadedError):
            self._wait(message, error)
        else:
            self._refuse(error, message)

    def _read_later(self, message: Body, received_ns: int, long: LongContentsError) -> None:
        """Have typed contents read in a thread, then resume the request. Further messages wait meanwhile."""
        resume = self.defer_messages()

        def done(contents: ReadContents) -> None:
            if not self._refused and not self._call.ended:
                self._receive_specially(self._decoder.read(message, contents), received_ns, len(message))
            # The request has its place by now, so the messages behind it may follow.
            resume()

        def failed(error: NaiadError) -> None:
            if not self._refused and not self._call.ended:
                # Before ``resume``: if it waits for a model, its place is before the messages that wait for it.
                self._not_read(error, message)
            resume()

        read_contents_later(message, long.budget, done, failed)

    def defer_messages(self) -> Callable[[], None]:
        """Let the messages that come from now on wait until the returned function is called."""
        # Messages that were received already still come after ``pause``, so they have to be kept as well.
        resume = self._waiting_messages().defer_messages()
        if not self._paused:
            self._paused = True
            self._call.pause()

        def end() -> None:
            resume()
            self._request_ended()

        return end

    def _is_full(self) -> bool:
        return len(self._places) >= MAX_UNANSWERED or self._decoupled >= MAX_DECOUPLED or self._call.congested

    def _refuse(self, error: NaiadError, message: Body) -> None:
        request_id = self._decoder.read_id(message)
        log_refusal(error, request_id)
        self._respond_at_once(partial(self._send_error, error, request_id))

    def _wait(self, message: Body, missing: ModelNotLoadedError) -> None:
        """Load the model of a message. It and the messages behind it wait meanwhile, and no further ones are read."""
        if self._decoder.demand is None:
            self._refuse(missing, message)
            return
        try:
            self._waiting_messages().wait(self._decoder.demand, message, missing)
        except NaiadError as refused:
            self._refuse(refused, message)
            return
        if not self._paused:
            self._paused = True
            self._call.pause()

    def _waiting_messages(self) -> WaitingMessages:
        if self._waiting is None:
            self._waiting = WaitingMessages(self._receive_again, self._refuse_again)
        return self._waiting

    def _receive_again(self, message: Body) -> None:
        self.receive(message)
        self._request_ended()

    def _refuse_again(self, error: NaiadError, message: Body) -> None:
        self._refuse(error, message)
        self._request_ended()

    def _submit(self, request: StreamRequest, late: DeferredInputs | None = None) -> None:
        request.queued_ns = monotonic_ns()
        # Before the submission: an inline model responds within it.
        self._places.add(request)
        self._running[request] = None
        try:
            if late is None:
                request.submit()
            else:
                request.submit_deferred(late)
        except NaiadError as error:
            self._running.pop(request, None)
            self._release(request, partial(self._send_error, error, request.id))

    def _submit_decoupled(self, request: DecoupledRequest, late: DeferredInputs | None = None) -> None:
        request.queued_ns = monotonic_ns()
        self._running[request] = None
        self._decoupled += 1
        try:
            if late is None:
                request.submit()
            else:
                request.submit_deferred(late)
        except NaiadError as error:
            # It has no place to release: as a response, the error also updates the counts.
            request.respond({}, error)

    def _receive_specially(self, found: Decoded, received_ns: int, size: int) -> None:
        """Submit a request whose inputs lie in regions, or may be too long for the event loop."""
        if found[1].regions is not None:
            self._receive_with_regions(found, received_ns, size)
            return
        kind = DecoupledRequest if found[0].spec.decoupled else StreamRequest
        request = kind(self, *found, received_ns)
        request.held_bytes = max(size, request.held_bytes)
        late = unvalidated_strings(request, found[0].spec)
        if isinstance(request, DecoupledRequest):
            self._submit_decoupled(request, late)
        else:
            self._submit(request, late)

    def _receive_with_regions(self, found: Decoded, received_ns: int, size: int) -> None:
        if found[0].spec.decoupled:
            request = DecoupledRegionRequest(self, *found, received_ns)
            request.open(self._regions)
            request.held_bytes = max(size, request.held_bytes)
            self._submit_decoupled(request)
        else:
            whole = StreamRegionRequest(self, *found, received_ns)
            whole.open(self._regions)
            whole.held_bytes = max(size, whole.held_bytes)
            self._submit(whole)

    def is_running(self, request: StreamRequest) -> bool:
        """Whether the caller still waits for responses to a request."""
        return request in self._running

    def _respond_at_once(self, send: Callable[[], None]) -> None:
        """Respond to a request that never ran, after the responses to earlier ones."""
        place = InferRequest(_NO_OPTIONS, {})
        # An empty request stands for it, since it has a place but no model.
        self._places.add(place)
        self._release(place, send)

    def end(self) -> None:
        """No more requests come: the call ends after the last response."""
        self._ended = True
        self._finish_when_done()

    def stop(self) -> None:
        """The server stops: no further requests are taken, and the call ends after the last response."""
        self._stops = self._refused = True
        if self._waiting is not None:
            self._waiting.leave()
        self._finish_when_done()

    def cancel(self) -> None:
        """Cancel all requests: the caller is gone."""
        if self._waiting is not None:
            self._waiting.leave()
        # Emptied first: the responses of cancelled requests must find nobody waiting.
        running, self._running = self._running, {}
        self._backlog.forget_all()
        self._decoupled = 0
        # The last first: a request that waits behind another must not begin as that one ends.
        for request in reversed(running):
            request.model.cancel(request)

    # Called by the models

    def send_response(self, request: StreamRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Send the only response to a request, or its error."""
        if request not in self._running:
            return
        if error is None:
            try:
                parts, size = request.plan.streamed(request.id, outputs)
            except LargeClassesError as large:
                # It stays in ``_running``: with its classes it responds once more.
                classify_off_loop(request, request.model.budget, large)
                return
            except NaiadError as unsendable:
                error = unsendable
            else:
                del self._running[request]
                self._release(request, partial(self._call.send, parts, size))
                return
        del self._running[request]
        self._release(request, partial(self._send_error, error, request.id, request.plan.model))

    def send_part(
        self,
        request: DecoupledRequest,
        outputs: Mapping[str, Array] | None,
        error: NaiadError | None,
        final: bool,
    ) -> None:
        """Send one response of a decoupled model; arguments as ``InferRequest.respond_part``."""
        if request not in self._running:
            return
        if self._backlog.is_full and (outputs is not None or error is not None):
            self.give_up(request)
            return
        # Encoded first: a response that cannot be sent becomes an error with the same ``final``.
        part = self._part(request, outputs, error, final)
        if final:
            del self._running[request]
            self._decoupled -= 1
        if isinstance(part, NaiadError):
            self._end_with(part)
        elif part is not None:
            self._backlog.send(*part)
        if final:
            self._backlog.forget(request)
            self._request_ended()
        elif self._backlog.holds:
            self._backlog.pause(request, request.model)

    def _part(
        self,
        request: DecoupledRequest,
        outputs: Mapping[str, Array] | None,
        error: NaiadError | None,
        final: bool,
    ) -> EncodedMessage | NaiadError | None:
        """The message for a response, None if nothing is sent, or the error that ends the call."""
        plan = request.plan
        if error is None:
            if outputs is None:
                return plan.ended(request.id) if plan.empty_final else None
            try:
                return plan.streamed(request.id, outputs, final)
            except NaiadError as unsendable:
                error = unsendable
        return error if self._ends_on_error else _error_message(error, request.id, plan.model, final)

    def give_up(self, request: DecoupledRequest) -> None:
        """Cancel a request whose caller takes its responses too slowly."""
        if request not in self._running:
            return
        error = ResponseBacklogError(
            f"{request_label(request.id)}the responses come faster than they are taken: too many wait, so the request "
            "was cancelled"
        )
        del self._running[request]
        self._backlog.forget(request)
        self._decoupled -= 1
        # After it left ``_running``: the response to the cancellation is dropped, and the caller gets the error below.
        request.model.cancel(request)
        self._send_error(error, request.id, request.plan.model)
        self._request_ended()

    # Responses leave in order

    def _release(self, place: InferRequest, send: Callable[[], None]) -> None:
        self._places.release(place, send)
        self._request_ended()

    def _request_ended(self) -> None:
        if self._paused:
            self._resume()
        if self._ended or self._stops:
            self._finish_when_done()

    def _send_error(self, error: NaiadError, request_id: str, model: str = "") -> None:
        """``model``: named if the request reached it; no further response follows then."""
        if self._ends_on_error:
            self._end_with(error, request_id)
            return
        self._call.send(*_error_message(error, request_id, model))

    def _end_with(self, error: NaiadError, request_id: str = "") -> None:
        self._refused = True
        fail(self._call, error, request_id)
        self.cancel()

    def _drained(self) -> None:
        self._backlog.drained()
        self._resume()

    def _resume(self) -> None:
        """Resume reading once few requests are in flight and the caller takes its responses."""
        # Half of the bounds, so that reading does not stop and resume with every response.
        few = len(self._places) <= MAX_UNANSWERED // 2 and self._decoupled <= MAX_DECOUPLED // 2
        waits = self._waiting is not None and self._waiting.is_waiting
        if self._paused and few and not waits and not self._call.congested:
            self._paused = False
            self._call.resume()

    def _finish_when_done(self) -> None:
        if len(self._places) or self._decoupled or (self._waiting is not None and self._waiting.is_waiting):
            return
        if self._ended:
            self._call.finish()
        elif self._stops:
            self._call.finish(Status.UNAVAILABLE, STOPPING)


def _error_message(error: NaiadError, request_id: str, model: str = "", final: bool = True) -> EncodedMessage:
    """The message for a request that failed; it has ``model`` and ``final`` once the request reached its model."""
    response = message_class("ModelStreamInferResponse")(error_message=caller_text(error))
    described = response.infer_response
    # Makes it present even if the request has no id.
    described.SetInParent()
    described.id = request_id
    if model:
        described.model_name = model
        described.parameters[FINAL].bool_param = final
    raw = response.SerializeToString()
    return (raw,), len(raw)
