"""From trials to advice: which change gains, and the simplest configuration that does the most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from naiad.perf.advise.advice import Advice, Choice, SetupChange
from naiad.perf.advise.gain import Verdict, compare_rounds
from naiad.perf.advise.trial import Tried

_NO_BATCHES: Final = (
    "not tried: max_batch_size is 0, so the model's tensors have no dimension for a batch; a model that can compute "
    "several rows at once has it in its configuration"
)
_NOT_TRIED: Final = "not tried"


def conclude(advice: Advice, batch_size: int, *, is_limited: bool) -> None:
    """Fill in the conclusions of an advice whose trials are done.

    Args:
        batch_size: rows of each request.
        is_limited: whether configurations that keep no latency limit are out of the question.
    """
    single = _fewest(advice.tried)
    off, on = _with(single, batching=False), _with(single, batching=True)
    advice.batching = _change(off, on) if advice.served.setup.max_batch_size else SetupChange(reason=_NO_BATCHES)
    advice.delay = _delay(off, on)
    base = _base(advice, off, on)
    if base is not None:
        chosen = _chosen(advice, base)
        in_flight = chosen.compared_at if is_limited else chosen.setup.in_flight(batch_size)
        advice.most = Choice(chosen, in_flight, _change(advice.served, chosen))
    least = _quickest(advice, single, base)
    if least is not None:
        advice.least = Choice(least, 1, advice.delay)


def _is_usable(tried: Tried) -> bool:
    return not tried.failure and tried.compared_at > 0


def _fewest(tried: Sequence[Tried]) -> list[Tried]:
    fewest = min(one.setup.instances for one in tried)
    return [one for one in tried if one.setup.instances == fewest]


def _with(tried: Sequence[Tried], *, batching: bool) -> Tried | None:
    return next((one for one in tried if one.setup.is_batching is batching), None)


def _change(first: Tried | None, second: Tried | None) -> SetupChange:
    """What the second configuration gains over the first one."""
    if first is None or second is None:
        return SetupChange(reason=_NOT_TRIED)
    for tried in (first, second):
        if tried.failure:
            return SetupChange(first=first, second=second, reason=f"not known: {tried.setup.name}: {tried.failure}")
        if not tried.compared_at:
            reason = f"not known: {tried.setup.name} does not keep the latency limit, even with 1 in flight"
            return SetupChange(first=first, second=second, reason=reason)
    if first is second:
        return SetupChange(first=first, second=second)
    comparison = compare_rounds(first.rates(first.compared_at), second.rates(second.compared_at))
    return SetupChange(comparison, first, second)


def _delay(off: Tried | None, on: Tried | None) -> SetupChange:
    """What dynamic batching does to a single request in flight, by its latency."""
    if off is None or on is None or off.failure or on.failure:
        return SetupChange(reason=_NOT_TRIED)
    return SetupChange(compare_rounds(off.latencies(1), on.latencies(1), less_is_better=True), off, on)


def _base(advice: Advice, off: Tried | None, on: Tried | None) -> Tried | None:
    """The better setting of batching; the one that is served where neither gains."""
    wanted = advice.served.setup.is_batching
    if advice.batching.comparison is not None:
        verdict = advice.batching.comparison.verdict
        wanted = verdict is Verdict.GAINS or (wanted and verdict is not Verdict.COSTS)
    order = (on, off) if wanted else (off, on)
    usable = [tried for tried in (*order, *advice.tried) if tried is not None and _is_usable(tried)]
    return usable[0] if usable else None


def _chosen(advice: Advice, base: Tried) -> Tried:
    """The base, or what gains over it: a second instance, or any other configuration."""
    doubled = tuple(2 * count for count in base.setup.counts)
    same = [tried for tried in advice.tried if tried.setup.is_batching is base.setup.is_batching]
    second = next((tried for tried in same if tried.setup.counts == doubled), None)
    advice.second_instance = _change(base, second)
    others = [tried for tried in advice.tried if tried is not base and _is_usable(tried)]
    chosen = base
    # The fewest instances first: more of them have to gain over fewer.
    for tried in sorted(others, key=lambda one: (one.setup.instances, one is not second)):
        found = _change(chosen, tried).comparison
        if found is not None and found.verdict is Verdict.GAINS:
            chosen = tried
    return chosen


def _quickest(advice: Advice, single: Sequence[Tried], base: Tried | None) -> Tried | None:
    """What answers a single request soonest; the setting of the base where batching makes no difference."""
    wanted = base is not None and base.setup.is_batching
    if advice.delay.comparison is not None:
        verdict = advice.delay.comparison.verdict
        wanted = verdict is Verdict.GAINS or (wanted and verdict is not Verdict.COSTS)
    usable = [tried for tried in single if not tried.failure]
    return next((tried for tried in usable if tried.setup.is_batching is wanted), usable[0] if usable else None)
