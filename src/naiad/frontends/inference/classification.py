"""Classification of outputs that are too large for the event loop."""

from __future__ import annotations

from naiad.errors import NaiadError
from naiad.frontends.inference.offload import run_off_loop
from naiad.request import InferRequest
from naiad.scheduling.admission import RequestBudget
from naiad.wire.v2.classification import Classified, LargeClassesError


def classify_off_loop(request: InferRequest, budget: RequestBudget, large: LargeClassesError) -> None:
    """Classify in a thread, then have ``request`` respond with the classes. ``budget`` counts the outputs meanwhile."""

    def succeed(outputs: Classified) -> None:
        request.respond(outputs, None)

    def fail(error: NaiadError) -> None:
        request.respond({}, error)

    run_off_loop(large.classify, succeed, fail, budget, large.held_bytes)
