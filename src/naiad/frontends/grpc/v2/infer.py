"""``ModelInfer``: a message becomes a request, outputs become a response. The hot path of gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from time import monotonic_ns

from naiad.errors import NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.grpc.rpc.call import Body, RpcCall, fail
from naiad.frontends.grpc.v2.infer_reader import Decoded, Decoder, LongContentsError, read_contents_later
from naiad.frontends.inference.classification import classify_off_loop
from naiad.frontends.inference.client_request import ClientRequest
from naiad.frontends.inference.deferred_inputs import unvalidated_strings
from naiad.frontends.inference.model_wait import wait_for_model
from naiad.frontends.inference.refusals import id_of, log_refusal
from naiad.frontends.inference.shared_memory_io import open_regions
from naiad.request import Array, BatchTimes, memory_of
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.tensor_ref import RegionUse
from naiad.wire.v2.classification import LargeClassesError
from naiad.wire.v2.long_contents import ReadContents
from naiad.wire.v2.proto import ProtoPlan


class GrpcInferRequest(ClientRequest):
    """A request that responds on its call, and that is cancelled when its caller gives up."""

    __slots__ = ("call",)
    plan: ProtoPlan
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
        # Not through super(): one call less per request on the hot path.
        self.call = call
        self.model = model
        self.plan = self.options = plan
        self.inputs = inputs
        # Inputs that are not views of the message hold memory of their own.
        self.held_bytes = plan.size if len(plan.inputs) == len(inputs) else memory_of(inputs)
        self.id = request_id
        self.received_ns = received_ns
        self.queued_ns = received_ns

    def headers(self) -> Mapping[str, str]:
        return self.call.metadata

    def joined(self, batch: BatchTimes) -> None:
        self.call.joined(batch)

    def is_wanted(self) -> bool:
        return not self.call.ended

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        if error is None:
            try:
                parts, size = self.plan.encode_response(self.id, outputs)
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

    __slots__ = ("_io", "use")
    use: RegionUse

    def submit(self, registry: RegionRegistry) -> None:
        """Look up its regions and submit it to its model, after the inputs that the model does not read itself.

        Raises:
            NaiadError: as ``open_regions`` and ``ServingModel.submit``.
        """
        self._io = io = open_regions(self, registry, self.model)
        self.use = io.use
        io.submit(self)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self._io.respond(self, outputs, error, GrpcInferRequest.respond)


class GrpcInferHandler:
    """Handles the calls of ``ModelInfer``. ``decoder`` reads their messages; ``regions`` are those of clients."""

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
            # Before the submission: an inline model responds within ``submit``, which drops the owner again.
            call.owner = request
            model.submit(request)
        except LongContentsError as long:
            self._read_later(call, message, received_ns, long)
        except NaiadError as error:
            self._fail_or_wait(call, message, error)

    def _receive(self, call: RpcCall, message: Body, received_ns: int, found: Decoded) -> None:
        """Submit a request that was read in full."""
        model, plan, inputs, request_id = found
        kind = GrpcInferRequest if plan.regions is None else GrpcRegionRequest
        request = kind(call, model, plan, inputs, request_id, received_ns)
        request.held_bytes = max(len(message), request.held_bytes)
        # The time of the reading must not count as time in the queue.
        request.queued_ns = monotonic_ns()
        self._submit_specially(request)

    def _read_later(self, call: RpcCall, message: Body, received_ns: int, long: LongContentsError) -> None:
        """Have typed contents read in a thread, then resume the same request."""

        def done(contents: ReadContents) -> None:
            if not call.ended:
                self._receive(call, message, received_ns, self._decoder.read(message, contents))

        read_contents_later(message, long.budget, done, partial(self._fail_or_wait, call, message))

    def _fail_or_wait(self, call: RpcCall, message: Body, error: NaiadError) -> None:
        """End the call with ``error``; or, where its model can be loaded, handle it again once it is."""
        retry, refuse = partial(self, call, message), partial(self._refuse, call, message)
        if not wait_for_model(self._decoder.demand, error, len(message), call, retry, refuse):
            refuse(error)

    def _refuse(self, call: RpcCall, message: Body, error: NaiadError) -> None:
        request_id = id_of(call.owner) or self._decoder.read_id(message)
        log_refusal(error, request_id)
        fail(call, error, request_id)

    def _submit_specially(self, request: GrpcInferRequest) -> None:
        """Submit a request whose inputs lie in regions, or may be too long for the event loop."""
        model = request.model
        request.call.owner = request
        if isinstance(request, GrpcRegionRequest):
            request.submit(self._regions)
            return
        late = unvalidated_strings(request, model.spec)
        if late is None:
            model.submit(request)
        else:
            request.submit_deferred(late)
