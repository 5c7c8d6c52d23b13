"""A server that tunes itself, beside the best configuration that measuring one after the other finds."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

from ..control import EXPLICIT
from ..figures import Bound, CaseError, Figure
from ..infer import Request, ask
from ..load import measure
from ..servers import HTTP, METRICS, Server, naiad
from ..settings import Settings
from ..tuned_models import CASES, INSTANCES, TunedCase, add_tuned_model

CONVERGED_S, AGAIN_S, AFTER_S = 60, 30, 10
QUICK_S = 6
STEP: Final = 4
ROUNDS: Final = 3
"""How often the tuned server and the best configuration are measured in turns."""
_LATE = re.compile(r'naiad_slo_(late_)?requests(?:_total)?\{model="(\w+)",version="\d+"\} (\d+)')
_SETTING = re.compile(r"naiad_tuned_setting\{([^}]*)\} (\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class _Offline:
    """The best configuration for a load, of ``count`` that were measured."""

    setup: Mapping[str, Any]
    count: int


def measure_slo(settings: Settings, case: TunedCase) -> Iterator[Figure]:
    """Throughput of a model once it is tuned, and again after four times the load, and its late requests."""
    repository = settings.work / "slo"
    add_tuned_model(repository, case)
    load = f"--load-model={case.name}"
    with naiad(repository, settings.work, options=(EXPLICIT, load)) as offline:
        slo = f"--slo=p99={case.limit_ms}ms,instances={INSTANCES if not case.has_threads else 2}"
        with naiad(repository, settings.work, options=(EXPLICIT, load, slo), service=METRICS) as tuned:
            yield from _compared(settings, case, offline, tuned)


SLO_CASES: Final = {f"slo_{case.name}": partial(measure_slo, case=case) for case in CASES}
"""One case for each model: each takes about four minutes."""


def _compared(settings: Settings, case: TunedCase, offline: Server, tuned: Server) -> Iterator[Figure]:
    bounds = not settings.quick
    for callers, wait_s, phase in ((case.callers, CONVERGED_S, "first"), (STEP * case.callers, AGAIN_S, "step")):
        best = _best(settings, case, offline, callers)
        measure(
            tuned.at(HTTP), case.request(), callers, QUICK_S if settings.quick else wait_s, settings.work, pin=False
        )
        before = _counted(tuned, case)
        ratio, rate = _in_turns(settings, case, offline, tuned, best, callers)
        late, requests = (now - then for now, then in zip(_counted(tuned, case), before, strict=True))
        name = f"slo_{case.name}_{phase}"
        chosen = f"it chose {_chosen(tuned, case)}, the best of {best.count} configurations has {_text(best.setup)}"
        note = f"{rate:.0f} rows/s by {callers} callers; {chosen}"
        yield Figure(f"{name}_throughput", ratio, "of the best", Bound(">=", 0.95) if bounds else None, note)
        part = late / max(requests, 1) * 100
        yield Figure(f"{name}_late", part, "% of requests", Bound("<=", 1) if bounds else None, f"of {requests:.0f}")


def _in_turns(
    settings: Settings, case: TunedCase, offline: Server, tuned: Server, best: _Offline, callers: int
) -> tuple[float, float]:
    """The tuned throughput as a part of the best configuration's, and itself; medians of turns."""
    _configure(offline, case, best.setup)
    ratios, rates = [], []
    for _ in range(1 if settings.quick else ROUNDS):
        seconds = 1 if settings.quick else AFTER_S // ROUNDS
        ours = measure(tuned.at(HTTP), case.request(), callers, seconds, settings.work, pin=False)
        other = measure(offline, case.request(), callers, seconds, settings.work, pin=False)
        rates.append(ours.rate)
        ratios.append(ours.rate / other.rate)
    return median(ratios), median(rates)


def _best(settings: Settings, case: TunedCase, server: Server, callers: int) -> _Offline:
    """The configuration with the most throughput within the limit, each measured for a short time."""
    found: list[tuple[bool, float, Mapping[str, Any]]] = []
    setups = list(case.setups())[:: 6 if settings.quick else 1]
    for setup in setups:
        _configure(server, case, setup)
        load = measure(server, case.request(), callers, 1, settings.work, pin=False)
        # Where a busy machine lets none keep the limit, the least over it is the best.
        keeps = load.p99_us <= case.limit_ms * 1000
        found.append((keeps, load.rate if keeps else -load.p99_us, setup))
    return _Offline(max(found, key=lambda one: one[:2])[2], len(setups))


def _configure(server: Server, case: TunedCase, changes: Mapping[str, Any]) -> None:
    """Serve a model with other fields of its configuration."""
    status, _, body = ask(server.port, Request(f"/v2/models/{case.name}/config", {}, b"", method="GET"))
    config = {**json.loads(body), **changes}
    load = {"parameters": {"config": json.dumps(config)}}
    request = Request(f"/v2/repository/models/{case.name}/load", {}, json.dumps(load).encode())
    status, _, body = ask(server.port, request)
    if status != 200:
        raise CaseError(f"{case.name} could not be loaded with {dict(changes)}: {body.decode(errors='replace')[:500]}")


def _text(setup: Mapping[str, Any]) -> str:
    """A configuration of ``TunedCase.setups`` in the words of the metrics."""
    threads = setup.get("parameters", {}).get("intra_op_thread_count", {}).get("string_value")
    settings = {
        "instances": setup["instance_group"][0]["count"],
        "threads": threads,
        "max_batch_size": setup["max_batch_size"],
        "max_queue_delay_microseconds": setup["dynamic_batching"]["max_queue_delay_microseconds"],
    }
    return ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)


def _chosen(server: Server, case: TunedCase) -> str:
    """What the server has set now."""
    _, _, body = ask(server.port, Request("/metrics", {}, b"", method="GET"))
    found = {}
    for labels, value in _SETTING.findall(body.decode()):
        named = dict(_LABEL.findall(labels))
        if named.get("model") == case.name:
            found[named["setting"]] = float(value)
    return ", ".join(f"{name} {value:g}" for name, value in found.items()) or "nothing"


def _counted(server: Server, case: TunedCase) -> tuple[float, float]:
    """How many requests were late so far, and how many there were."""
    time.sleep(1)
    _, _, body = ask(server.port, Request("/metrics", {}, b"", method="GET"))
    found = {bool(late): float(value) for late, model, value in _LATE.findall(body.decode()) if model == case.name}
    if set(found) != {True, False}:
        raise CaseError(f"the metrics page has no requests of {case.name} with an objective")
    return found[True], found[False]
