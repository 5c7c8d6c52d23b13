"""``ModelRequest``: a request of this API on its way through a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic_ns

from naiad.errors import INTERNAL_FAILURE, InternalError, NaiadError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.exchange_request import ExchangeRequest
from naiad.frontends.inference.deferred_inputs import unvalidated_strings
from naiad.frontends.openai.replies import ModelFlow, Reply
from naiad.request import Array, memory_of
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS
from naiad.telemetry.logs.server_log import request_log
from naiad.wire.v2.binary import BinaryPlan

log = logging.getLogger(__name__)


class ModelRequest(ExchangeRequest):
    """A request whose responses go to a reply. It is cancelled when its caller leaves.

    Attributes:
        is_over: the reply is complete; further responses of the model are dropped.
    """

    __slots__ = ("is_over", "reply")

    def __init__(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        make_reply: Callable[[ModelFlow], Reply],
    ) -> None:
        self.exchange = exchange
        self.model = model
        self.plan = self.options = plan
        self.inputs = inputs
        self.id = request_id
        self.held_bytes = memory_of(inputs)
        self.received_ns = self.queued_ns = monotonic_ns()
        self.is_over = False
        self.reply = make_reply(self)

    def submit(self) -> None:
        """Pass it to its model.

        Raises:
            NaiadError: the model does not take it.
        """
        self.exchange.owner = self
        late = unvalidated_strings(self, self.model.spec)
        if late is not None:
            self.submit_deferred(late)
        else:
            self.model.submit(self)

    # Called by the model

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        self.respond_part(outputs if error is None else None, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            return
        try:
            if error is None:
                self.is_over = self.reply.take(outputs, final)
                return
        except NaiadError as unsendable:
            error = unsendable
        except Exception:
            request_log(log, logging.ERROR, self.id, "the answer could not be sent", exc_info=True)
            error = InternalError(INTERNAL_FAILURE)
        self.is_over = True
        if not final:
            self.stop()
        self.reply.fail(error)

    # Called by the connection

    def cancel(self) -> None:
        # A caller that only ended its own direction still reads the response.
        self.is_over = self.exchange.closed()
        self.model.cancel(self)

    # Called by the reply

    def pause(self) -> None:
        self.model.pause(self, BACKPRESSURE_TIMEOUT_MS)

    def resume(self) -> None:
        if not self.is_over:
            self.model.resume(self)

    def stop(self) -> None:
        self.model.cancel(self)
