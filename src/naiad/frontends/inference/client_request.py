"""``ClientRequest``: an inference request that a client sent, over any protocol."""

from __future__ import annotations

from typing import Any, cast

from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.deferred_inputs import DeferredInputs, submit_when_read
from naiad.request import InferRequest, Recipient
from naiad.wire.v2.plan import InferPlan


class ClientRequest(InferRequest):
    """A request of a client, with the model that it goes to.

    Attributes:
        model: the model; after ``retarget`` the version that the route chose.
        plan: the plan of the request, which also encodes the response. It is ``options`` too.
    """

    __slots__ = ("model", "plan")
    model: ServingModel
    plan: InferPlan[Any]

    def retarget(self, recipient: Recipient) -> None:
        # The response names the version that made it, and the plan encodes that name.
        self.model = cast(ServingModel, recipient)
        self.plan = self.options = self.plan.of_version(recipient.version)

    def is_wanted(self) -> bool:
        """Whether the caller still waits for a response."""
        raise NotImplementedError

    def submit_deferred(self, deferred: DeferredInputs) -> None:
        """Submit it to its model once its inputs are read; errors as ``submit_when_read``."""
        submit_when_read(self, self.model, deferred, self.is_wanted)
