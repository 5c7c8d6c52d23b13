"""The file of ``naiad perf advise --json``: every trial, the comparisons, and the winner."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import orjson

from naiad.perf.advise.advice import Advice, Choice, SetupChange
from naiad.perf.advise.text import snippet_of
from naiad.perf.advise.trial import Trial, Tried
from naiad.perf.report.plain_values import to_plain
from naiad.perf.settings import AdviseSettings
from naiad.version import __version__

SCHEMA: Final = "naiad-perf-advice"
SCHEMA_VERSION: Final = 1
_PERCENTS: Final = (50, 90, 95, 99)


def write_advice(advice: Advice, settings: AdviseSettings, file: Path) -> None:
    """Write an advice.

    Raises:
        OSError: the file cannot be written.
    """
    plain = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "naiad_version": __version__,
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": list(advice.command),
        "machine": advice.machine,
        "settings": to_plain(settings),
        "model": advice.model,
        "protocol": advice.protocol,
        "endpoint": advice.endpoint,
        "rounds": advice.rounds,
        "is_interrupted": advice.is_interrupted,
        "tried": [_tried(tried) for tried in advice.tried],
        "batching": _change(advice.batching),
        "second_instance": _change(advice.second_instance),
        "batching_latency": _change(advice.delay),
        "most_inferences": _choice(advice.most),
        "least_latency": _choice(advice.least),
        "config_pbtxt": snippet_of(advice, settings),
    }
    file.write_bytes(orjson.dumps(plain, option=orjson.OPT_APPEND_NEWLINE))


def _tried(tried: Tried) -> dict[str, Any]:
    setup = tried.setup
    return {
        "name": setup.name,
        "is_served": setup.is_served,
        "is_batching": setup.is_batching,
        "instances": setup.instances,
        "config": setup.config,
        "failure": tried.failure,
        "compared_at": tried.compared_at,
        "levels": [
            {
                "in_flight": in_flight,
                "inference_rate": tried.rate(in_flight),
                "latency_ms": tried.latency_ms(in_flight),
                "rounds": [_trial(trial) for trial in tried.trials[in_flight]],
            }
            for in_flight in sorted(tried.trials)
        ],
    }


def _trial(trial: Trial) -> dict[str, Any]:
    latency = trial.merged.latency
    return {
        "inference_rates": trial.rates,
        "latencies_ms": [duration / 1e6 for duration in trial.latencies],
        "latency_us": {
            "avg": latency.mean / 1e3,
            **{f"p{percent}": latency.percentile(percent) / 1e3 for percent in _PERCENTS},
        },
        "mean_batch": trial.mean_batch,
        "errors": trial.merged.errors.total(),
        "is_client_bound": trial.merged.client.is_bottleneck,
    }


def _change(change: SetupChange) -> dict[str, Any]:
    found = change.comparison
    plain: dict[str, Any] = {
        "from": None if change.first is None else change.first.setup.name,
        "to": None if change.second is None else change.second.setup.name,
        "reason": change.reason,
        "verdict": None,
    }
    if found is not None:
        verdict = found.verdict.name.lower()
        plain |= {"verdict": verdict, "gain": found.gain, "gains_of_rounds": found.rounds, "p": found.chance}
        plain["is_client_bound"] = change.is_client_bound
    return plain


def _choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "name": choice.tried.setup.name,
        "in_flight": choice.in_flight,
        "inference_rate": choice.rate,
        "latency_ms": choice.latency_ms,
        "beside_served": _change(choice.change),
    }
