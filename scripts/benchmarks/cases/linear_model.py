"""The field's tutorial model, 1000 chained layers of one neuron: the gain of batching where a call has a fixed cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .. import models
from ..closed_loop import repeat_times, run_calls
from ..direct import call_directly
from ..figures import Bound, CaseError, Figure
from ..infer import binary_request, check_answer
from ..load import Contender, Load, compare
from ..rounds import median, median_ratio
from ..servers import naiad
from ..settings import Settings

CALLERS = 16
WARM_UP_CALLS = 400
WARM_UP_SECONDS = 120.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Rate against the same model unbatched, and the tail against the model's own time for a batch of 16."""
    repository = settings.work / "linear"
    row = np.array([[0.5]], np.float32)
    file, answer = models.add_linear_models(repository, row)
    own_us = call_directly("torch", file, CALLERS, settings.seconds)["median_us"]
    with naiad(repository, settings.work) as server:
        contenders = {
            name: Contender(server, binary_request(name, {"INPUT": row}, "OUTPUT"))
            for name in ("linear_model", "linear_unbatched")
        }
        for contender in contenders.values():
            warm_up(contender)
            check_answer(server.port, contender.request, "OUTPUT", answer)
        loads = compare(settings, contenders, CALLERS, pin=False)
    yield from figures(loads["linear_model"], loads["linear_unbatched"], own_us)


def warm_up(contender: Contender) -> None:
    """Let TorchScript see the batches to come: it optimises the network, for seconds, on its first few calls."""
    calls = repeat_times(contender.request.wire(), WARM_UP_CALLS)
    tally = run_calls(contender.server.port, calls, CALLERS, WARM_UP_SECONDS)
    if tally.wrong:
        raise CaseError(f"warming up {contender.request.path}: {tally.summary()}")


def figures(batched: list[Load], unbatched: list[Load], own_us: float) -> Iterator[Figure]:
    """The lines of the table."""
    p95_us = median(batched, lambda load: load.p95_us)
    yield Figure("linear_own_time", own_us, "us", note=f"torch called directly, one thread, batch of {CALLERS}")
    yield Figure("linear_rate", median(batched, _rate), "requests/s", note=f"{CALLERS} callers, batched dynamically")
    yield Figure("linear_unbatched_rate", median(unbatched, _rate), "requests/s", note=f"{CALLERS} callers")
    yield Figure(
        "linear_ratio", median_ratio(batched, unbatched, _rate), "of unbatched", Bound(">=", 8), "published: 8.2"
    )
    yield Figure("linear_p95", p95_us, "us", Bound("<=", 5300))
    yield Figure("linear_p95_ratio", p95_us / own_us, "of own time", Bound("<=", 3))


def _rate(load: Load) -> float:
    return load.rate
