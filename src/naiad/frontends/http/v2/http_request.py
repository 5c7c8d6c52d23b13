"""``HttpClientRequest``: what the requests to ``infer`` and to ``generate`` have in common."""

from __future__ import annotations

from collections.abc import Mapping

from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.json_worker.pool import JsonWork
from naiad.frontends.http.server.exchange import Exchange
from naiad.frontends.http.server.exchange_request import ExchangeRequest
from naiad.request import Array
from naiad.wire.v2.binary import BinaryPlan


class HttpClientRequest(ExchangeRequest):
    """A request that is cancelled when its caller leaves.

    ``json_work`` writes large responses.
    """

    __slots__ = ("json_work",)
    plan: BinaryPlan

    def __init__(
        self,
        exchange: Exchange,
        model: ServingModel,
        plan: BinaryPlan,
        inputs: Mapping[str, Array],
        request_id: str,
        received_ns: int,
        json_work: JsonWork,
    ) -> None:
        # Not through super(): one call less per request on the hot path.
        self.exchange = exchange
        self.model = model
        self.plan = self.options = plan
        self.inputs = inputs
        self.held_bytes = plan.size
        self.id = request_id
        self.received_ns = self.queued_ns = received_ns
        self.json_work = json_work

    def cancel(self) -> None:
        """The caller is gone: leave the queue, or tell the model."""
        self.model.cancel(self)
