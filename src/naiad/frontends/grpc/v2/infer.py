"""``ModelInfer``: a message becomes a request, outputs become an answer. The hot path of gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic_ns
from typing import cast

from naiad.errors import NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.grpc.rpc.call import Body, RpcCall, fail
from naiad.frontends.grpc.v2.infer_reader import Decoded, Decoder, LongContentsError, read_contents_later
from naiad.frontends.grpc.v2.model_wait import wait_for_model
from naiad.frontends.inference import shared_memory_io as in_regions
from naiad.frontends.inference.classification import classify_off_loop
from naiad.frontends.inference.deferred_inputs import late_strings, submit_when_read
from naiad.request import Array, InferRequest, Recipient, memory_of
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.tensor_ref import RegionUse
from naiad.wire.v2.classification import LargeClassesError
from naiad.wire.v2.long_contents import ReadContents
from naiad.wire.v2.proto import ProtoPlan


class GrpcInferRequest(InferRequest):
    """A request that answers on its call, and that the caller can give up."""

    __slots__ = ("call", "model", "plan")
    carrier = "GRPC"

    def __init__(
        self,
        call: RpcCall,
        model: ServingModel,
        plan: ProtoPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
    ) -> None:
        # Not through super(): one call less for every request.
        self.call = call
        self.model = model
        self.plan = self.options = plan
        self.inputs = inputs
        # Inputs that are no views of the message hold memory of their own.
        self.held_bytes = plan.size if len(plan.inputs) == len(inputs) else memory_of(inputs)
        self.id = request_id
        self.received_ns = received_ns
        self.queued_ns = received_ns

    def headers(self) -> Mapping[str, str]:
        return self.call.metadata

    def aim(self, recipient: Recipient) -> None:
        """Another version answers, which the answer says."""
        self.model = cast(ServingModel, recipient)
        self.plan = self.options = self.plan.of_version(recipient.version)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is None:
            try:
                parts, size = self.plan.answer(self.id, outputs)
            except LargeClassesError as large:
                classify_off_loop(self, self.model.budget, large)
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


class GrpcRegionRequest(GrpcInferRequest):
    """A request with tensors in regions of the client."""

    __slots__ = ("_is_given_up", "use")
    use: RegionUse

    def submit(self, registry: RegionRegistry) -> None:
        """Look up its regions and hand it to its model, once all is read that the model does not read itself.

        Raises:
            NaiadError: as ``open_regions`` and ``LoadedModel.submit``.
        """
        self._is_given_up = False
        self.use, late = in_regions.open_regions(self, registry, self.model)
        self.held_bytes = memory_of(self.inputs)
        if late is None:
            self.model.submit(self)
        else:
            submit_when_read(self, self.model, late, lambda: not self._is_given_up)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is not None or in_regions.is_placed(self.use, outputs):
            super().respond(outputs, error)
            return

        def done(problem: NaiadError | None) -> None:
            # Classes may be found later, and then the answer is given once more.
            self.use.is_placed = True
            GrpcInferRequest.respond(self, outputs, problem)

        in_regions.place(self.use, outputs, done, self.model.budget)

    def cancel(self) -> None:
        """The caller gave up."""
        self._is_given_up = True
        super().cancel()


class GrpcInferHandler:
    """Handles the calls of ``ModelInfer``, which ``decoder`` reads; ``regions`` are those of clients, if any."""

    __slots__ = ("_decoder", "_regions")

    def __init__(self, decoder: Decoder, regions: RegionRegistry | None = None) -> None:
        self._decoder = decoder
        self._regions = regions or RegionRegistry()

    def __call__(self, call: RpcCall, message: Body) -> None:
        received_ns = monotonic_ns()
        try:
            found = self._decoder.recall(message)
            if found is None:
                self._receive(call, message, received_ns, self._decoder.read(message))
                return
            model, plan, inputs, request_id = found
            kind = GrpcInferRequest if plan.regions is None else GrpcRegionRequest
            request = kind(call, model, plan, inputs, request_id, received_ns)
            if plan.is_special:
                self._submit_specially(request)
                return
            call.owner = request
            model.submit(request)
        except LongContentsError as long:
            self._read_later(call, message, received_ns, long)
        except NaiadError as error:
            if not wait_for_model(self._decoder.demand, call, message, error, self):
                fail(call, error)

    def _receive(self, call: RpcCall, message: Body, received_ns: int, found: Decoded) -> None:
        """Hand a request over that was read in full."""
        model, plan, inputs, request_id = found
        kind = GrpcInferRequest if plan.regions is None else GrpcRegionRequest
        request = kind(call, model, plan, inputs, request_id, received_ns)
        request.held_bytes = max(len(message), request.held_bytes)
        # Reading took a while, and was no wait in a queue.
        request.queued_ns = monotonic_ns()
        self._submit_specially(request)

    def _read_later(self, call: RpcCall, message: Body, received_ns: int, long: LongContentsError) -> None:
        """Have typed contents read in a thread, and go on with the same request."""

        def done(contents: ReadContents) -> None:
            if not call.ended:
                self._receive(call, message, received_ns, self._decoder.read(message, contents))

        def failed(error: NaiadError) -> None:
            if not wait_for_model(self._decoder.demand, call, message, error, self):
                fail(call, error)

        read_contents_later(message, long.budget, done, failed)

    def _submit_specially(self, request: GrpcInferRequest) -> None:
        """Hand a request over whose inputs lie in regions, or may be too long for the event loop."""
        call, model = request.call, request.model
        call.owner = request
        if isinstance(request, GrpcRegionRequest):
            request.submit(self._regions)
            return
        late = late_strings(request, model.spec)
        if late is None:
            model.submit(request)
        else:
            submit_when_read(request, model, late, lambda: not call.ended)
