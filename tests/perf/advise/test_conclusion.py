"""From the figures of trials to advice, with figures made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from naiad.perf.advise.advice import Advice
from naiad.perf.advise.conclusion import conclude
from naiad.perf.advise.setup import setups_of
from naiad.perf.advise.text import advice_text
from naiad.perf.advise.trial import Trial, Tried
from naiad.perf.results import ClientUsage
from naiad.perf.settings import AdviseSettings, LoadPlan, MeasureSettings, PerfSettings
from support.perf_reports import window

NOISE = (0.99, 1.0, 1.01)
SETTINGS = AdviseSettings(PerfSettings(measure=MeasureSettings(interval_ms=1000)), 3)


def trial(in_flight: int, rate: float, latency_ms: float, **client: Any) -> Trial:
    return Trial(
        in_flight,
        tuple(rate * part for part in NOISE),
        tuple(latency_ms * 1e6 * part for part in NOISE),
        window([latency_ms * 1e3] * 5, client=ClientUsage(**client)),
    )


def advice_of(
    rates: dict[str, float],
    served: str = "batching off, 1 instance",
    at_one: dict[str, float] | None = None,
    **client: Any,
) -> Advice:
    """Advice about a model whose configurations do so many inferences a second with 32 in flight."""
    batching = {"dynamic_batching": {}} if "on" in served else {}
    groups = [{"count": int(served.split(", ")[1].split()[0])}]
    found = setups_of({"name": "m", "max_batch_size": 8, "instance_group": groups, **batching})
    tried = []
    for setup in found:
        one = Tried(setup, compared_at=32)
        for in_flight in {1, setup.in_flight(1), 32}:
            latency_ms = (at_one or {}).get(setup.name, 10.0) if in_flight == 1 else 1e3 * in_flight / 100
            rate = 1e3 / latency_ms if in_flight == 1 else rates.get(setup.name, 100.0)
            one.trials[in_flight] = [trial(in_flight, rate, latency_ms, **client)] * 3
        tried.append(one)
    advice = Advice("m", rounds=3, endpoint="here:8000", tried=tried)
    conclude(advice, 1, is_limited=False)
    return advice


def shown(advice: Advice, settings: AdviseSettings = SETTINGS) -> list[str]:
    return advice_text(advice, settings).splitlines()


def winner(advice: Advice) -> str:
    assert advice.most is not None
    return advice.most.tried.setup.name


ON, OFF_2, ON_2 = "batching on, 1 instance", "batching off, 2 instances", "batching on, 2 instances"
ON_4 = "batching on, 4 instances"


@pytest.mark.parametrize(
    ("rates", "served", "best"),
    [
        ({ON: 800, ON_2: 1600}, "batching off, 1 instance", ON_2),
        ({ON: 800, ON_2: 810}, "batching off, 1 instance", ON),
        ({OFF_2: 200, ON_2: 200}, "batching off, 1 instance", OFF_2),
        # Nothing gains: what is served stays, with the fewest instances.
        ({}, "batching off, 1 instance", "batching off, 1 instance"),
        ({}, "batching on, 1 instance", ON),
        ({}, "batching on, 2 instances", ON),
        ({ON: 50, ON_2: 50}, "batching on, 1 instance", "batching off, 1 instance"),
        # Only both together gain.
        ({ON_2: 200}, "batching off, 1 instance", ON_2),
        # More instances than are tried.
        (
            {ON: 800, ON_2: 1600, "batching on, 4 instances": 3200},
            "batching on, 4 instances",
            "batching on, 4 instances",
        ),
        ({ON: 800, ON_2: 1600, ON_4: 1600}, ON_4, ON_2),
    ],
)
def test_the_simplest_configuration_that_does_the_most(rates: dict[str, float], served: str, best: str) -> None:
    assert winner(advice_of(rates, served)) == best


def test_what_a_person_reads() -> None:
    lines = shown(advice_of({ON: 800, ON_2: 806}))
    assert lines[:3] == [
        "*** Advice for the model 'm' at here:8000, over HTTP ***",
        "  Served now: batching off, 1 instance",
        "  Measured in turns, 3 rounds of 3 windows of 1 s; the figures are medians",
    ]
    assert "  batching on, 1 instance                       16         800.0   160 ms              -" in lines
    sure = "to +700.0% in 3 rounds, p < 0.001 over 9 windows each)"
    assert (
        f"Batching: gains: +700.0% inferences a second (+700.0% {sure}, from batching off, 1 instance to batching on, "
        "1 instance with 32 in flight"
    ) in lines
    (second,) = [line for line in lines if line.startswith("Second instance: ")]
    assert second.startswith("Second instance: gains nothing here: +0.8% inferences a second (+0.8% to +0.8% in 3 ")
    assert second.endswith("with 32 in flight; a gain above 5% would have shown")
    assert "Most inferences: batching on, 1 instance, 16 in flight: 800.0 inferences a second, average 160 ms" in lines
    assert lines[-6:] == ["max_batch_size: 8", "dynamic_batching {", "}", "instance_group {", "  count: 1", "}"]


def test_nothing_gains() -> None:
    text = "\n".join(shown(advice_of({})))
    assert "Batching: gains nothing here: +0.0% inferences a second" in text
    assert "Second instance: gains nothing here: +0.0% inferences a second" in text
    assert "Keep what is served: nothing that was tried gains over it" in text
    assert "Least latency: batching off, 1 instance, 1 in flight: 100.0 inferences a second, average 10.0 ms" in text


def test_batching_that_delays_a_single_request() -> None:
    advice = advice_of({ON: 800, ON_2: 1600}, at_one={ON: 15.0})
    assert advice.least is not None
    assert advice.least.tried.setup.name == "batching off, 1 instance"
    assert "Batching with 1 request in flight: costs: the average latency is 50.0% more" in "\n".join(shown(advice))


def test_a_delay_that_is_noise() -> None:
    advice = advice_of({})
    on = next(tried for tried in advice.tried if tried.setup.name == ON)
    on.trials[1] = [trial(1, 100, latency_ms) for latency_ms in (8.0, 12.0, 10.0)]
    conclude(advice, 1, is_limited=False)
    assert "Batching with 1 request in flight: is unclear, which counts as no change: +0.0%" in "\n".join(shown(advice))


def test_a_client_at_its_limit_shows_no_gain() -> None:
    text = "\n".join(shown(advice_of({}, is_bottleneck=True)))
    assert text.count("the client was the bottleneck, so a gain could not show: take more --client-workers") == 2
    assert "would have shown" not in text


def test_configurations_that_failed_are_named_and_out() -> None:
    advice = advice_of({ON: 800, ON_2: 1600})
    advice.tried[-1].failure = "no room for a second one"
    conclude(advice, 1, is_limited=False)
    assert winner(advice) == ON
    assert f"Second instance: not known: {ON_2}: no room for a second one" in shown(advice)


def test_no_configuration_keeps_the_limit() -> None:
    advice = advice_of({})
    for tried in advice.tried:
        tried.compared_at = 0
    advice.most = None
    conclude(advice, 1, is_limited=True)
    settings = AdviseSettings(PerfSettings(load=LoadPlan(latency_limit_ms=2)), 3)
    assert "Most inferences: no configuration keeps 2 ms, even with 1 in flight" in shown(advice, settings)


def test_an_interrupted_run_has_figures_and_no_advice() -> None:
    advice = advice_of({})
    advice.is_interrupted = True
    lines = shown(advice)
    assert lines[-1] == "Interrupted: there is no advice."
    assert not any(line.startswith("Batching:") for line in lines)
