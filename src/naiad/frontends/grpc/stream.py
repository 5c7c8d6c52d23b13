"""``ModelStreamInfer``: one call, many requests in flight, their answers in the order of the requests.

Source: the protocol's gRPC section and recorded answers. A request that fails is answered with ``error_message`` and
the call goes on, unless the caller's metadata says ``triton_grpc_error: true``: then the first failure ends the call
with its status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic_ns
from typing import Final

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.execution.model import LoadedModel
from naiad.frontends.grpc.call import Body, Call, Receiver, fail, send_message
from naiad.frontends.grpc.infer_read import RequestDecoder, UnparsableRequestError
from naiad.request import Array, InferRequest, RequestTerms
from naiad.scheduling.ordering import OrderedRelease
from naiad.wire.grpc.status import STOPPING, Status
from naiad.wire.infer_proto import ProtoPlan

MAX_UNANSWERED: Final = 64
"""No further requests are read from a caller while so many are unanswered."""

ENDS_ON_ERROR: Final = "triton_grpc_error"
_NO_TERMS: Final = RequestTerms(())


class StreamService:
    """Opens the calls of ``ModelStreamInfer``."""

    def __init__(self, engine: Engine) -> None:
        self._decoder = RequestDecoder(engine, serves_decoupled=True)

    def open(self, call: Call) -> Receiver:
        """A call has begun: who takes its requests."""
        return _InferStream(call, self._decoder)


class _StreamRequest(InferRequest):
    """A request that answers through its stream."""

    __slots__ = ("model", "plan", "stream")

    def __init__(
        self,
        stream: _InferStream,
        model: LoadedModel,
        plan: ProtoPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
    ) -> None:
        super().__init__(plan, inputs, request_id, received_ns)
        self.stream = stream
        self.model = model
        self.plan = plan

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.stream.answer(self, outputs, error)


class _InferStream:
    """One call.

    A request has its place in ``_places`` until its answer is sent, and is in ``_running`` until its model answers.
    """

    __slots__ = (
        "_call",
        "_decoder",
        "_ended",
        "_ends_on_error",
        "_paused",
        "_places",
        "_refused",
        "_running",
        "_stops",
    )

    def __init__(self, call: Call, decoder: RequestDecoder) -> None:
        self._call = call
        self._decoder = decoder
        self._places = OrderedRelease()
        self._running: set[_StreamRequest] = set()
        self._ends_on_error = call.metadata.get(ENDS_ON_ERROR) == "true"
        self._paused = False
        self._ended = False
        self._refused = False
        self._stops = False
        call.on_drained = self._go_on

    # What the caller does

    def receive(self, message: Body) -> None:
        """A request: hand it to its model, or answer what is wrong with it in its place."""
        if self._refused:
            return
        received_ns = monotonic_ns()
        try:
            found = self._decoder.recall(message) or self._decoder.read(message)
            self._submit(_StreamRequest(self, *found, received_ns))
        except UnparsableRequestError as error:
            self._refused = True
            self._answer_at_once(partial(self._end_with, error))
        except NaiadError as error:
            self._answer_at_once(partial(self._send_error, error, self._decoder.read_id(message)))
        if not self._paused and (len(self._places) >= MAX_UNANSWERED or self._call.congested):
            self._paused = True
            self._call.pause()

    def _submit(self, request: _StreamRequest) -> None:
        request.queued_ns = monotonic_ns()
        self._places.expect(request)
        self._running.add(request)
        try:
            request.model.submit(request)
        except NaiadError as error:
            self._running.discard(request)
            self._release(request, partial(self._send_error, error, request.id))

    def _answer_at_once(self, send: Callable[[], None]) -> None:
        """Answer a request that never ran, when those before it are answered."""
        place = InferRequest(_NO_TERMS, {})
        self._places.expect(place)
        self._release(place, send)

    def end(self) -> None:
        """No more requests come: the call ends when all are answered."""
        self._ended = True
        self._finish_when_done()

    def stop(self) -> None:
        """The server stops: no further requests are taken, and the call ends when all are answered."""
        self._stops = self._refused = True
        self._finish_when_done()

    def cancel(self) -> None:
        """Nobody waits any more: take what is queued out of the queues."""
        running, self._running = self._running, set()
        for request in running:
            request.model.cancel(request)

    # What the models do

    def answer(self, request: _StreamRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """The answer to a request that ran, or that its model gave up."""
        if request not in self._running:
            return
        if error is None:
            try:
                parts, size = request.plan.streamed(request.id, outputs)
            except NaiadError as unsendable:
                error = unsendable
            else:
                self._running.remove(request)
                self._release(request, partial(self._call.send, parts, size))
                return
        self._running.remove(request)
        self._release(request, partial(self._send_error, error, request.id, request.plan.model))

    # Answers leave in order

    def _release(self, place: InferRequest, send: Callable[[], None]) -> None:
        self._places.release(place, send)
        if self._paused:
            self._go_on()
        if self._ended or self._stops:
            self._finish_when_done()

    def _send_error(self, error: NaiadError, request_id: str, model: str = "") -> None:
        """``model``: named when the request reached it; no further answer follows then."""
        if self._ends_on_error:
            self._end_with(error)
            return
        response = message_class("ModelStreamInferResponse")(error_message=str(error))
        described = response.infer_response
        described.SetInParent()
        described.id = request_id
        if model:
            described.model_name = model
            described.parameters["triton_final_response"].bool_param = True
        send_message(self._call, response)

    def _end_with(self, error: NaiadError) -> None:
        self._refused = True
        fail(self._call, error)
        self.cancel()

    def _go_on(self) -> None:
        """Read on, once few requests are unanswered and the caller takes the answers."""
        if self._paused and len(self._places) <= MAX_UNANSWERED // 2 and not self._call.congested:
            self._paused = False
            self._call.resume()

    def _finish_when_done(self) -> None:
        if len(self._places):
            return
        if self._ended:
            self._call.finish()
        elif self._stops:
            self._call.finish(Status.UNAVAILABLE, STOPPING)
