"""What a front-end process does with requests: inference is read here, everything else goes to the engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from naiad.bounded_dict import BoundedDict
from naiad.errors import NaiadError
from naiad.frontends.access.features import feature_of_grpc, feature_of_http
from naiad.frontends.http.json_worker.pool import MANY_VALUES_BYTES
from naiad.frontends.http.v2.body_parts import describe_body
from naiad.frontends.http.v2.infer import HttpInferHandler
from naiad.frontends.http.v2.model_path import MODEL
from naiad.frontends.inference.server_timing import wants_timing
from naiad.server.fronts.remote_engine import ElsewhereError, RemoteEngine
from naiad.wire.grpc.paths import INFERENCE, path

if TYPE_CHECKING:
    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.rpc.call import Body, RpcCall
    from naiad.frontends.grpc.v2.infer import GrpcInferHandler
    from naiad.frontends.http.json_worker.pool import JsonWork
    from naiad.frontends.http.server.content_coding import ContentCoding
    from naiad.frontends.http.server.exchange import Exchange, Handler
    from naiad.server.fronts.grpc_relay import GrpcRelay
    from naiad.server.fronts.http_relay import HttpRelay
    from naiad.wire.http1.head import RequestHead

MODEL_INFER: Final = path(INFERENCE, "ModelInfer")
_REGION: Final = b"shared_memory_region"
_IDENTITY: Final = "identity"
_INFER: Final = re.compile(MODEL + "/infer")
MAX_HANDLERS: Final = 1024
_MAX_TARGET: Final = 4096


@dataclass(frozen=True, slots=True)
class FrontServices:
    """What the handlers of inference are made with."""

    engine: RemoteEngine
    json_work: JsonWork


class FrontApplication:
    """Finds the handler for a request head: the ``Application`` of the HTTP listener.

    Inference is handled here for callers without a limit of their own. Requests whose handling depends on more than
    head, body and model go to the engine: forwarded headers, compressed bodies, pages of other origins, limited keys,
    requests for ``server-timing``.

    Args:
        services: what inference needs.
        relay: hands requests over.
        coding: compresses responses.
        gate: decides who may call what, as the engine does again for what is handed over.
        reads_inference: False where every request of inference goes to the engine.
    """

    def __init__(
        self, services: FrontServices, relay: HttpRelay, coding: ContentCoding, gate: Gate, reads_inference: bool
    ) -> None:
        self._services = services
        self._relay = relay
        self._coding = coding
        self._gate = gate
        self._reads_inference = reads_inference
        self._handlers: dict[str, HttpInferHandler] = BoundedDict(MAX_HANDLERS)

    def __call__(self, head: RequestHead) -> Handler:
        feature = feature_of_http(head.target)
        is_limited = False
        if not self._gate.is_open:
            try:
                is_limited = self._gate.admit(feature, head.headers) is not None
            except NaiadError:
                # The engine refuses it, whatever the body holds.
                head.refused = True
                return self._relay
        if feature != "inference":
            return self._relay
        match = _INFER.fullmatch(head.target) if head.method == "POST" else None
        if match is None:
            # Models can be loaded without room for inference.
            head.needs_room = True
            return self._relay
        describe_body(head)
        if is_limited or not self._reads_inference or not _is_usual(head):
            return self._relay
        handler = self._handlers.get(head.target)
        if handler is None:
            handler = HttpInferHandler(self._services, match["model"], match["version"])
            if len(head.target) <= _MAX_TARGET:
                self._handlers[head.target] = handler
        head.find_arena = handler.arena
        return self._or_hand_over(self._coding.around(handler, head))

    def _or_hand_over(self, inner: Handler) -> Handler:
        engine, relay = self._services.engine, self._relay

        def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
            if len(body) >= MANY_VALUES_BYTES and _names_region(exchange.head, body):
                # It would be read by a worker, too late to hand it over.
                relay(exchange, body)
                return
            engine.can_hand_over = True
            try:
                inner(exchange, body)
            except ElsewhereError:
                relay(exchange, body)
            finally:
                engine.can_hand_over = False

        return handle


def _is_usual(head: RequestHead) -> bool:
    headers = head.headers
    is_plain = headers.get("content-encoding", _IDENTITY).lower() == _IDENTITY
    return is_plain and "origin" not in headers and not wants_timing(headers)


def _names_region(head: RequestHead, body: Body) -> bool:
    size = head.first_part_bytes
    return _REGION in bytes(body if size is None else memoryview(body)[: max(0, size)])


class FrontInfer:
    """Handles the calls of ``ModelInfer`` in a front-end process; arguments as ``FrontApplication``."""

    def __init__(self, engine: RemoteEngine, inner: GrpcInferHandler, relay: GrpcRelay, gate: Gate) -> None:
        self._engine = engine
        self._inner = inner
        self._relay = relay
        self._gate = gate

    def __call__(self, call: RpcCall, message: Body) -> None:
        if wants_timing(call.metadata) or (not self._gate.is_open and not self._may_pass(call)):
            self._relay.call(MODEL_INFER, call, message)
            return
        if len(message) >= MANY_VALUES_BYTES and _REGION in bytes(message[:MANY_VALUES_BYTES]):
            self._relay.call(MODEL_INFER, call, message)
            return
        self._engine.can_hand_over = True
        try:
            self._inner(call, message)
        except ElsewhereError:
            self._relay.call(MODEL_INFER, call, message)
        finally:
            self._engine.can_hand_over = False

    def _may_pass(self, call: RpcCall) -> bool:
        try:
            return self._gate.admit(feature_of_grpc(MODEL_INFER), call.metadata) is None
        except NaiadError:
            return False
