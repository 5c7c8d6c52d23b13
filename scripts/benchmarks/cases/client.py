"""The client library beside the official one: the same calls to one server, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..rounds import alternate, median, median_ratio
from ..servers import GRPC, HTTP, naiad
from ..settings import Settings

SCRIPTS = Path(__file__).resolve().parents[2]
START_SECONDS = 60
CALLERS = (1, 16)
KINDS = {
    "client_http": ("naiad", "triton", HTTP),
    "client_http_aio": ("naiad_aio", "triton_aio", HTTP),
    "client_grpc": ("naiad", "triton_grpc", GRPC),
    "client_grpc_aio": ("naiad_aio", "triton_grpc_aio", GRPC),
}
Sample = dict[str, float]


def measure(settings: Settings) -> Iterator[Figure]:
    """16 floats on ``identity`` over HTTP and gRPC, threads and coroutines; server and client on a core each."""
    repository = settings.work / "client"
    fields = (
        models.tensor_field("input", "x", "TYPE_FP32", [16]),
        models.tensor_field("output", "y", "TYPE_FP32", [16]),
    )
    models.add_model(repository, "echo", 'backend: "identity"', *fields)
    with naiad(repository, settings.work, machine.server_core(), service=GRPC) as server:
        for name, (ours, theirs, service) in KINDS.items():
            urls = {theirs: f"127.0.0.1:{server.ports[service]}"}
            urls[ours] = f"grpc://{urls[theirs]}" if service == GRPC else urls[theirs]
            for callers in CALLERS:
                yield from _compare(settings, f"{name}_{callers}", urls, ours, theirs, callers)


def _compare(
    settings: Settings, name: str, urls: Mapping[str, str], ours: str, theirs: str, callers: int
) -> Iterator[Figure]:
    kinds = {kind: lambda kind=kind: _calls(kind, urls[kind], callers, settings.seconds) for kind in (ours, theirs)}
    found = alternate(settings.rounds, kinds)  # type: ignore[arg-type]
    ratio = median_ratio(found[ours], found[theirs], lambda sample: sample["rate"])
    yield Figure(f"{name}_rate", median(found[ours], lambda sample: sample["rate"]), "/s", None, ours)
    yield Figure(f"{name}_cpu", median(found[ours], lambda sample: sample["cpu_us"]), "us", None, ours)
    yield Figure(f"{name}_ratio", ratio, "", Bound(">=", 2), f"rate over that of tritonclient ({theirs})")


def _calls(kind: str, url: str, callers: int, seconds: int) -> Sample:
    words = [kind, url, str(callers), str(seconds)]
    command = machine.on_core([sys.executable, "-m", "benchmarks.client_calls", *words], machine.client_core())
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=START_SECONDS + 5 * seconds, env=environment
    )
    if done.returncode:
        raise CaseError(f"{kind} with {callers} callers failed: {done.stderr[-2000:]}")
    result: Sample = json.loads(done.stdout.splitlines()[-1])
    return result
