"""All servers on one network with one form of requests: paced, at the maximum and under twice the maximum."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from .. import load
from ..figures import CaseError, CaseSkippedError, Figure
from ..grpc_request import PREFIX_BYTES, ask_unary
from ..h2load import Fan, GrpcContender, measure_grpc
from ..machine import MIB
from ..rounds import alternate, median, median_ratio
from ..servers import Server
from ..settings import Settings
from .launch import serving
from .locust_load import BUSY, Seen, UserLoad, put_load
from .subjects import Subject, make_subject
from .table import PEERS, Peer
from .wires import Wire, WireRequest

USERS = 20
RATE = 10.0
STRESS_USERS = 100
STRESS = 2.0
WARM_UP_SECONDS = 2
MAXIMUM_ROUNDS = 3
PACED, MAXIMUM = UserLoad(USERS, RATE), UserLoad(USERS)
HEADINGS = (
    "server", "200/s: rate", "p95 ms", "maximum", "p95 ms", "CPU us", "x Naiad's", "MiB", "light", "CPU us",
    "twice: rate", "p95 ms", "failed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Running:
    """A server that has answered well."""

    server: Server
    request: WireRequest


@dataclass(frozen=True, slots=True)
class Light:
    """What came of as many connections as there are users, by a generator that costs little; 0 where it failed."""

    rate: float
    cpu_us: float
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Everything about one server and one form, round by round."""

    paced: Sequence[Seen]
    maximum: Sequence[Seen]
    stress: Sequence[Seen]
    light: Sequence[Light]


def compare(settings: Settings, subject: str, wire: Wire) -> Iterator[Figure]:
    """The figures of all servers on one network; a table and what is missing are printed as well.

    Raises:
        CaseSkippedError: the network cannot be made.
    """
    network = make_subject(subject, settings.work)
    name = f"peers_{subject}_{wire}"
    yield Figure(f"{name}_call", network.call_ms, "ms", note="ONNX Runtime alone, a row on a thread")
    found, missing = _measure(settings, network, wire)
    print(f"\n{subject}, {wire}\n\n{table(found)}\n", flush=True)
    for peer, reason in missing.items():
        print(f"{peer} left out: {reason}", flush=True)
    for peer, one in found.items():
        yield from figures(f"{name}_{peer}", one, found.get("naiad"))


def _measure(settings: Settings, subject: Subject, wire: Wire) -> tuple[dict[str, Found], dict[str, str]]:
    with ExitStack() as stack:
        running, missing = _start(settings, subject, wire, stack)
        rounds = min(settings.rounds, MAXIMUM_ROUNDS)

        def rounds_of(loads: Mapping[str, UserLoad]) -> dict[str, list[Seen]]:
            measures = {peer: partial(_put, settings, one, loads[peer]) for peer, one in running.items()}
            return alternate(rounds, measures)

        paced = rounds_of(dict.fromkeys(running, PACED))
        maximum = rounds_of(dict.fromkeys(running, MAXIMUM))
        light = alternate(rounds, {peer: partial(_put_light, settings, one) for peer, one in running.items()})
        stress: dict[str, list[Seen]] = {peer: [] for peer in running}
        if not settings.quick:
            stress = rounds_of({peer: _twice(seen) for peer, seen in maximum.items()})
    return {peer: Found(paced[peer], maximum[peer], stress[peer], light[peer]) for peer in running}, missing


def _twice(maximum: Sequence[Seen]) -> UserLoad:
    """Users who would send at twice the maximum if responses came at once."""
    return UserLoad(STRESS_USERS, max(STRESS * median(maximum, _rate), 1.0) / STRESS_USERS)


def _start(
    settings: Settings, subject: Subject, wire: Wire, stack: ExitStack
) -> tuple[dict[str, Running], dict[str, str]]:
    running: dict[str, Running] = {}
    missing: dict[str, str] = {}
    for peer in PEERS:
        if wire in peer.without:
            missing[peer.name] = peer.without[wire]
            continue
        try:
            running[peer.name] = _warm(settings, peer, subject, wire, stack)
        except (CaseError, CaseSkippedError) as error:
            if peer.name == "naiad":
                raise
            missing[peer.name] = str(error)
            print(f"{subject.name} {wire} {peer.name}: {error}", file=sys.stderr)
    return running, missing


def _warm(settings: Settings, peer: Peer, subject: Subject, wire: Wire, stack: ExitStack) -> Running:
    server, request = stack.enter_context(serving(settings, peer, subject, wire))
    running = Running(server, request)
    put_load(server.pid, server.port, request, MAXIMUM, WARM_UP_SECONDS, settings.work)
    return running


def _put(settings: Settings, one: Running, users: UserLoad) -> Seen:
    return put_load(one.server.pid, one.server.port, one.request, users, settings.seconds, settings.work)


def _put_light(settings: Settings, one: Running) -> Light:
    try:
        if one.request.protocol == "http":
            seen = load.measure(one.server, one.request.http, USERS, settings.seconds, settings.work)
            return Light(seen.rate, seen.cpu_us)
        length = PREFIX_BYTES + len(ask_unary(one.server.port, one.request.path, one.request.body))
        contender = GrpcContender(one.server, one.request.body, length)
        calls = measure_grpc(contender, Fan(USERS, 1), settings.seconds, settings.work)
        return Light(calls.rate, calls.cpu_us)
    except (CaseError, CaseSkippedError) as error:
        return Light(0.0, 0.0, str(error).splitlines()[0])


def figures(name: str, found: Found, ours: Found | None) -> Iterator[Figure]:
    """The lines of one server and one form."""
    loads = (("200", found.paced), ("max", found.maximum), ("stress", found.stress))
    for label, seen in ((label, seen) for label, seen in loads if seen):
        yield Figure(f"{name}_{label}", median(seen, _rate), "responses/s", note=_limit(seen))
        yield Figure(f"{name}_{label}_p95", median(seen, _p95_ms), "ms")
        yield Figure(f"{name}_{label}_cpu", median(seen, _cpu_us), "CPU us/response")
        yield Figure(f"{name}_{label}_memory", median(seen, _mib), "MiB")
        failures, requests = (sum(getattr(one, kind) for one in seen) for kind in ("failures", "requests"))
        problem = next((one.problem for one in seen if one.problem), "")
        yield Figure(f"{name}_{label}_failed", failures, f"of {requests:,}", note=problem[:200])
    problem = next((one.problem for one in found.light if one.problem), "")
    yield Figure(f"{name}_light", median(found.light, _rate), "responses/s", note=problem)
    yield Figure(f"{name}_light_cpu", median(found.light, _cpu_us), "CPU us/response")
    if ours is not None and ours is not found:
        yield Figure(f"{name}_dearer", _dearer(found, ours), "times Naiad's CPU", note="at the maximum, pair by pair")


def table(found: Mapping[str, Found]) -> str:
    """The figures of one form as a table in Markdown."""
    ours = found.get("naiad")
    lines = [_row(HEADINGS), _row(["---"] * len(HEADINGS))]
    return "\n".join(lines + [_row(_cells(peer, one, ours)) for peer, one in found.items()])


def _cells(peer: str, found: Found, ours: Found | None) -> list[str]:
    paced = [median(found.paced, key) for key in (_rate, _p95_ms)]
    maximum = [median(found.maximum, key) for key in (_rate, _p95_ms, _cpu_us)]
    cells = [peer, *(f"{value:,.0f}" for value in (*paced, *maximum))]
    cells[3] += " (Locust)" if _limit(found.maximum) else ""
    cells.append(f"{_dearer(found, ours):.2f}" if ours else "")
    cells += [f"{value:,.0f}" for value in (median(found.maximum, _mib), *(_light(found)))]
    stress = [median(found.stress, key) for key in (_rate, _p95_ms)] if found.stress else []
    cells += [f"{value:,.0f}" for value in stress] or ["", ""]
    everything = (*found.paced, *found.maximum, *found.stress)
    return [*cells, f"{sum(seen.failures for seen in everything):,} of {sum(seen.requests for seen in everything):,}"]


def _light(found: Found) -> tuple[float, float]:
    return median(found.light, _rate), median(found.light, _cpu_us)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _limit(seen: Sequence[Seen]) -> str:
    return "Locust was the limit" if median(seen, lambda one: one.busy) > BUSY else ""


def _dearer(found: Found, ours: Found) -> float:
    if any(not one.cpu_us for one in ours.maximum):
        return 0.0
    return median_ratio(found.maximum, ours.maximum, _cpu_us)


def _rate(seen: Seen | Light) -> float:
    return seen.rate


def _p95_ms(seen: Seen) -> float:
    return seen.p95_ms


def _cpu_us(seen: Seen | Light) -> float:
    return seen.cpu_us


def _mib(seen: Seen) -> float:
    return seen.memory / MIB
