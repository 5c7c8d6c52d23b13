"""What metrics, slow requests and traces cost: the small network of ``mlp`` with them on, beside a server without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from .. import machine, models
from ..figures import Bound, Figure
from ..load import Contender, Load, compare
from ..rounds import median, median_ratio
from ..servers import naiad
from ..settings import Settings
from .mlp import CONNECTIONS, our_request, rate

METRICS = ("--metrics-config=summary_latencies=true", "--metrics-config=histogram_latencies=true")
ALL_ON = (*METRICS, "--slow-requests=100")
TRACED = ("--trace-config=level=TIMESTAMPS", "--trace-config=rate=100")


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates and processor time at 64 connections, the three servers in turns."""
    repository = settings.work / "telemetry"
    models.add_mlp(repository)
    core = machine.server_core()
    traces = f"--trace-config=triton,file={settings.work / 'traces.json'}"
    options = {"off": (), "slow": ("--slow-requests=100",), "on": ALL_ON, "traced": (*ALL_ON, *TRACED, traces)}
    with ExitStack() as stack:
        contenders = {
            name: Contender(stack.enter_context(naiad(repository, settings.work, core, given)), our_request())
            for name, given in options.items()
        }
        loads = compare(settings, contenders, CONNECTIONS)
    off = loads["off"]
    yield Figure("telemetry_off_rate", median(off, rate), "requests/s", note="default options")
    yield Figure("telemetry_off_cpu", median(off, _cpu), "CPU us/request")
    for name, bound in (("slow", 0.99), ("on", 0.98), ("traced", 0.95)):
        on = loads[name]
        yield Figure(f"telemetry_{name}_ratio", median_ratio(on, off, rate), "of the rate", Bound(">=", bound))
        yield Figure(
            f"telemetry_{name}_cpu", median(on, _cpu) - median(off, _cpu), "CPU us/request", note="more than without"
        )


def _cpu(load: Load) -> float:
    return load.cpu_us
