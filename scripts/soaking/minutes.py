"""Each minute of a run by itself: latencies, whose processor time it took, and what happened to the server in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .faults import Faults
from .record import NS_PER_MINUTE, Record
from .samples import Sample

S_PER_MINUTE = 60
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Minute:
    """One minute under load.

    Attributes:
        rate: responses a second.
        server_cores, callers_cores, other_cores: how many cores were busy with the server process, with the callers,
            and with all else, which are the workers on a machine that does nothing else; 0 without samples.
        events: which model was loaded anew, which worker was killed, and how long each took.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    server_cores: float
    callers_cores: float
    other_cores: float
    events: tuple[str, ...]


def minutes(record: Record, faults: Faults, samples: Sequence[Sample], count: int) -> Iterator[Minute]:
    """The first so many minutes of a run."""
    began_s, happened = record.began_ns / NS_PER_S, _events(faults)
    for number in range(count):
        within = [s for s in samples if number * S_PER_MINUTE <= s.at_s - began_s < (number + 1) * S_PER_MINUTE]
        latencies = record.by_minute[number]
        p50_ms, p99_ms = (latencies.percentile(percent) / 1e6 for percent in (50, 99))
        events = tuple(text for at_ns, text in happened if (at_ns - record.began_ns) // NS_PER_MINUTE == number)
        yield Minute(latencies.count / S_PER_MINUTE, p50_ms, p99_ms, *_cores(within), events)


def _cores(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """The cores busy between the first and the last of these samples: with the server, the callers, and all else."""
    if len(samples) < 2:
        return 0.0, 0.0, 0.0
    first, last = samples[0], samples[-1]
    seconds = last.at_s - first.at_s
    server_s, callers_s = last.server_s - first.server_s, last.callers_s - first.callers_s
    other_s = last.busy_s - first.busy_s - server_s - callers_s
    return server_s / seconds, callers_s / seconds, other_s / seconds


def _events(faults: Faults) -> list[tuple[int, str]]:
    reloads = [(reload.began_ns, f"{reload.model} loaded anew in {reload.seconds:.1f} s") for reload in faults.reloads]
    kills = [
        (kill.killed_ns, f"{kill.name} killed, back in {(kill.back_ns - kill.killed_ns) / NS_PER_S:.1f} s")
        for kill in faults.kills
    ]
    return sorted(reloads + kills)


def lines(found: Sequence[Minute]) -> list[str]:
    """A table of them."""
    head = "minute  a second   p50 ms   p99 ms  cores: server  callers  others"
    return [head, *(_line(number, minute) for number, minute in enumerate(found))]


def _line(number: int, minute: Minute) -> str:
    cores = f"{minute.server_cores:14.2f} {minute.callers_cores:8.2f} {minute.other_cores:7.2f}"
    latencies = f"{minute.rate:9.1f} {minute.p50_ms:8.2f} {minute.p99_ms:8.1f}"
    return f"{number:6} {latencies} {cores}  {'; '.join(minute.events)}".rstrip()
