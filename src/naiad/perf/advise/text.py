"""The advice as a person reads it: a table of what was measured, what each change gains, and the winner."""

from __future__ import annotations

from collections.abc import Iterator

from naiad.perf.advise.advice import Advice, Choice, SetupChange
from naiad.perf.advise.gain import GainComparison, Verdict
from naiad.perf.advise.snippet import config_snippet
from naiad.perf.advise.trial import Trial, Tried
from naiad.perf.measure.stability import WINDOWS
from naiad.perf.report.scales import duration_text
from naiad.perf.settings import AdviseSettings


def advice_text(advice: Advice, settings: AdviseSettings) -> str:
    """The whole text."""
    parts = [_head(advice, settings), _table(advice, settings)]
    if advice.is_interrupted:
        parts.append("Interrupted: there is no advice.\n")
    else:
        parts.append("".join(f"{line}\n" for line in advice_findings(advice, settings)))
        parts.append(_winner(advice, settings))
    return "\n".join(part for part in parts if part)


def trial_text(trial: Trial, settings: AdviseSettings) -> str:
    """One line about one trial, for whoever watches."""
    rate = _rate(trial.merged.request_rate * settings.perf.input.batch_size)
    latency = f"{latency_name(settings)} {duration_text(trial.latency_ms * 1e3)}"
    return f"{trial.in_flight} in flight: {rate} inferences/s, {latency}"


def latency_name(settings: AdviseSettings) -> str:
    """Which latency is meant: ``p95``, or ``average``."""
    percentile = settings.perf.measure.percentile
    return "average" if percentile is None else f"p{percentile}"


def advice_findings(advice: Advice, settings: AdviseSettings) -> list[str]:
    """What each change gains, one sentence for each."""
    lines = [
        f"Batching: {_gain(advice.batching)}",
        f"Second instance: {_gain(advice.second_instance)}",
    ]
    if advice.delay.comparison is not None:
        lines.append(f"Batching with 1 request in flight: {_delay(advice.delay.comparison, settings)}")
    lines += [f"Not told: {tried.setup.name}: {tried.failure}" for tried in advice.tried if tried.failure]
    return lines


def _head(advice: Advice, settings: AdviseSettings) -> str:
    window_s = settings.perf.measure.interval_ms / 1e3
    protocol = {"grpc": "gRPC", "http": "HTTP"}[advice.protocol]
    lines = [
        f"*** Advice for the model '{advice.model}' at {advice.endpoint}, over {protocol} ***",
        f"  Served now: {advice.served.setup.name}",
        f"  Measured in turns, {advice.rounds} rounds of {WINDOWS} windows of {window_s:g} s; the figures are medians",
    ]
    if limit_ms := settings.perf.load.latency_limit_ms:
        lines.append(f"  Latency limit: {latency_name(settings)} of {limit_ms} ms")
    return "".join(f"{line}\n" for line in lines)


def _table(advice: Advice, settings: AdviseSettings) -> str:
    header = ("configuration", "in flight", "inferences/s", latency_name(settings), "per execution")
    rows = [row for tried in advice.tried for row in _rows(tried)]
    if not rows:
        return ""
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    return "".join(
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + "\n"
        for row in (header, *rows)
    )


def _rows(tried: Tried) -> Iterator[tuple[str, ...]]:
    name = tried.setup.name + (" (served now)" if tried.setup.is_served else "")
    rounds = max(map(len, tried.trials.values()), default=0)
    for in_flight in sorted(tried.trials):
        # Steps on the way to a latency limit were measured once, and are no figures to rely on.
        if len(tried.trials[in_flight]) == rounds:
            batch = tried.mean_batch(in_flight)
            yield (
                name,
                str(in_flight),
                _rate(tried.rate(in_flight)),
                duration_text(tried.latency_ms(in_flight) * 1e3),
                f"{batch:.1f}" if batch else "-",
            )


def _gain(change: SetupChange) -> str:
    """What a change gains in the rate."""
    found, first, second = change.comparison, change.first, change.second
    if found is None or first is None or second is None:
        return change.reason
    words = f"{found.verdict}: {found.gain:+.1%} inferences a second {_sureness(found)}, {_with_what(first, second)}"
    if found.verdict in (Verdict.NOTHING, Verdict.UNCLEAR) and change.is_client_bound:
        return f"{words}; the client was the bottleneck, so a gain could not show: take more --client-workers"
    if found.verdict is Verdict.NOTHING:
        return f"{words}; a gain above {found.would_show:.0%} would have shown"
    if found.verdict is Verdict.UNCLEAR:
        return f"{words}; that may be noise and counts as no gain: longer windows (-p) or more --rounds tell"
    return words


def _with_what(first: Tried, second: Tried) -> str:
    at = f"{first.compared_at} in flight"
    if first.compared_at != second.compared_at:
        at = f"{first.compared_at} and {second.compared_at} in flight"
    return f"from {first.setup.name} to {second.setup.name} with {at}"


def _sureness(found: GainComparison) -> str:
    """How sure a comparison is: the gains of the rounds, and how likely windows that differ so are by chance."""
    low, high = min(found.rounds), max(found.rounds)
    chance = "p < 0.001" if found.chance < 0.001 else f"p {found.chance:.2g}"
    return f"({low:+.1%} to {high:+.1%} in {len(found.rounds)} rounds, {chance} over {found.windows} windows each)"


def _delay(found: GainComparison, settings: AdviseSettings) -> str:
    name = latency_name(settings)
    if found.verdict is Verdict.GAINS:
        return f"the {name} latency is {found.gain:.1%} less {_sureness(found)}"
    if found.verdict is Verdict.COSTS:
        return f"costs: the {name} latency is {1 / (1 + found.gain) - 1:.1%} more {_sureness(found)}"
    words = "is unclear, which counts as no change" if found.verdict is Verdict.UNCLEAR else "changes nothing"
    return f"{words}: {found.gain:+.1%} {_sureness(found)}"


def _winner(advice: Advice, settings: AdviseSettings) -> str:
    lines = []
    if advice.least is not None:
        lines.append(f"Least latency: {choice_text(advice.least, settings)}")
    if advice.most is None:
        limit_ms = settings.perf.load.latency_limit_ms
        reason = f"no configuration keeps {limit_ms} ms, even with 1 in flight" if limit_ms else "nothing was measured"
        return "".join(f"{line}\n" for line in [*lines, f"Most inferences: {reason}"])
    lines.append(f"Most inferences: {choice_text(advice.most, settings)}")
    lines.append(_beside_served(advice.most))
    text = "".join(f"{line}\n" for line in lines)
    return f"{text}\nFor config.pbtxt:\n\n{snippet_of(advice, settings)}"


def _beside_served(choice: Choice) -> str:
    found = choice.change.comparison
    if choice.tried.setup.is_served:
        return "Keep what is served: nothing that was tried gains over it"
    if found is None:
        return f"Beside what is served now: {choice.change.reason}"
    if found.verdict in (Verdict.GAINS, Verdict.COSTS):
        return f"Beside what is served now: {found.gain:+.1%} inferences a second {_sureness(found)}"
    return f"Beside what is served now: no gain, with fewer instances or without batching: {found.gain:+.1%}"


def choice_text(choice: Choice, settings: AdviseSettings) -> str:
    """A configuration with the figures that speak for it."""
    latency = f"{latency_name(settings)} {duration_text(choice.latency_ms * 1e3)}"
    return (
        f"{choice.tried.setup.name}, {choice.in_flight} in flight: {_rate(choice.rate)} inferences a second, {latency}"
    )


def snippet_of(advice: Advice, settings: AdviseSettings) -> str:
    """The winner's part of a config.pbtxt, with its figures as comments; empty when there is no winner."""
    if advice.most is None:
        return ""
    changes = {"Batching": advice.batching, "Second instance": advice.second_instance}
    remarks = [choice_text(advice.most, settings), *(f"{name}: {_short(change)}" for name, change in changes.items())]
    return config_snippet(advice.most.tried.setup, remarks)


def _short(change: SetupChange) -> str:
    found = change.comparison
    if found is None:
        return change.reason
    rounds = f"{min(found.rounds):+.1%} to {max(found.rounds):+.1%} in {len(found.rounds)} rounds"
    return f"{found.verdict}, {found.gain:+.1%} inferences a second ({rounds})"


def _rate(inferences: float) -> str:
    """A rate with as many digits as mean something."""
    return f"{inferences:.1f}" if inferences < 10_000 else f"{inferences:.0f}"
