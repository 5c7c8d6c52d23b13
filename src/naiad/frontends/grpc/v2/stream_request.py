"""The requests of one ``ModelStreamInfer`` call: each responds through its stream, once or any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from naiad.errors import NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.client_request import ClientRequest
from naiad.frontends.inference.deferred_inputs import DeferredInputs, submit_when_read
from naiad.frontends.inference.shared_memory_io import OrderedOutputs, SharedMemoryIO, open_regions
from naiad.request import Array, memory_of
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.tensor_ref import RegionUse
from naiad.wire.v2.proto import ProtoPlan


class RequestStream(Protocol):
    """The stream of a request."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the call."""

    def defer_messages(self) -> Callable[[], None]:
        """Let the messages that come from now on wait until the returned function is called."""

    def is_running(self, request: StreamRequest) -> bool:
        """Whether the caller still waits for responses to ``request``."""

    def send_response(self, request: StreamRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Take the only response to ``request``."""

    def send_part(
        self,
        request: DecoupledRequest,
        outputs: Mapping[str, Array] | None,
        error: NaiadError | None,
        final: bool,
    ) -> None:
        """Take one response of a decoupled model; arguments as ``InferRequest.respond_part``."""

    def give_up(self, request: DecoupledRequest) -> None:
        """Cancel ``request``: its caller takes the responses too slowly."""


class StreamRequest(ClientRequest):
    """A request of a stream with one response."""

    __slots__ = ("stream",)
    plan: ProtoPlan
    carrier = "GRPC"

    def __init__(
        self,
        stream: RequestStream,
        model: ServingModel,
        plan: ProtoPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
    ) -> None:
        # Not through super(): one call less per request on the hot path.
        self.stream = stream
        self.model = model
        self.plan = self.options = plan
        self.inputs = inputs
        self.id = request_id
        self.received_ns = self.queued_ns = received_ns
        self.held_bytes = memory_of(inputs)

    def headers(self) -> Mapping[str, str]:
        return self.stream.metadata

    def submit(self) -> None:
        """Submit it to its model; errors as ``ServingModel.submit``."""
        self.model.submit(self)

    def is_wanted(self) -> bool:
        return self.stream.is_running(self)

    def submit_deferred(self, deferred: DeferredInputs) -> None:
        """Submit it to its model once its inputs are read; later requests of its sequence do not overtake it.

        Raises:
            QueueFullError: as ``submit_when_read``.
        """
        if not self.options.correlation_id:
            super().submit_deferred(deferred)
            return
        # Which messages behind it belong to its sequence is known only when they are read, so all of them wait.
        resume = self.stream.defer_messages()
        try:
            submit_when_read(self, self.model, deferred, self.is_wanted, resume)
        except BaseException:
            # ``submit_when_read`` calls it in all other cases; without it the stream would wait for ever.
            resume()
            raise

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.stream.send_response(self, outputs, error)


class DecoupledRequest(StreamRequest):
    """A request with any number of responses."""

    __slots__ = ()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.stream.send_part(self, outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        self.stream.send_part(self, outputs, error, final)


class StreamRegionRequest(StreamRequest):
    """A request with tensors in shared memory of the client, and one response."""

    __slots__ = ("_io", "use")
    use: RegionUse

    def open(self, registry: RegionRegistry) -> None:
        """Look up its regions; errors as ``open_regions``."""
        self._io = io = open_regions(self, registry, self.model)
        self.use = io.use

    def submit(self) -> None:
        self._io.submit(self)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self._io.respond(self, outputs, error, StreamRequest.respond)


class DecoupledRegionRequest(DecoupledRequest):
    """A request with tensors in shared memory of the client, and any number of responses."""

    __slots__ = ("_io", "_outputs", "use")
    use: RegionUse

    def open(self, registry: RegionRegistry) -> None:
        """Look up its regions; errors as ``open_regions``."""
        self._io: SharedMemoryIO = open_regions(self, registry, self.model)
        self.use = self._io.use
        self._outputs = OrderedOutputs(self.use, self.model.budget)

    def submit(self) -> None:
        self._io.submit(self)

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.respond_part(outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        # The bound method is passed anew each time: stored, it would lead back to the request and keep its regions
        # open.
        if not self._outputs.add(outputs, error, final, super().respond_part):
            self.stream.give_up(self)
