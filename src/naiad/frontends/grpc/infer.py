"""``ModelInfer``: a message becomes a request, outputs become an answer. The hot path of gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns

from naiad.errors import NaiadError
from naiad.execution.serving import ServingModel
from naiad.frontends.classifying import classify_off_loop
from naiad.frontends.grpc.call import Body, Call, fail
from naiad.frontends.grpc.infer_read import Decoder
from naiad.frontends.grpc.waiting import wait_for_model
from naiad.request import Array, InferRequest, Recipient
from naiad.wire.infer_classes import LargeClassesError
from naiad.wire.infer_proto import ProtoPlan


class GrpcInferRequest(InferRequest):
    """A request that answers on its call, and that the caller can give up."""

    __slots__ = ("call", "model", "plan")
    carrier = "GRPC"

    def __init__(
        self,
        call: Call,
        model: ServingModel,
        plan: ProtoPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
    ) -> None:
        # Not through super(): one call less for every request.
        self.call = call
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
        if error is None:
            try:
                parts, size = self.plan.answer(self.id, outputs)
            except LargeClassesError as large:
                classify_off_loop(self, large)
                return
            except NaiadError as unsendable:
                error = unsendable
            else:
                self.call.reply(parts, size)
                return
        fail(self.call, error)

    def cancel(self) -> None:
        """The caller gave up: leave the queue."""
        self.model.cancel(self)


class InferHandler:
    """Handles the calls of ``ModelInfer``, whose messages ``decoder`` reads."""

    __slots__ = ("_decoder",)

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    def __call__(self, call: Call, message: Body) -> None:
        received_ns = monotonic_ns()
        try:
            found = self._decoder.recall(message)
            if found is not None:
                model, plan, inputs, request_id = found
                request = GrpcInferRequest(call, model, plan, inputs, request_id, received_ns)
            else:
                model, plan, inputs, request_id = self._decoder.read(message)
                request = GrpcInferRequest(call, model, plan, inputs, request_id, received_ns)
                # Reading took a while, and was no wait in a queue.
                request.queued_ns = monotonic_ns()
            call.owner = request
            model.submit(request)
        except NaiadError as error:
            if not wait_for_model(self._decoder.demand, call, message, error, self):
                fail(call, error)
