"""The client library beside the official one, and with shared memory beside itself without, in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
ELEMENTS = 16
LARGE = {"600kb": 150_000, "10mb": 2_500_000}
SHARED = {
    "client_http": ("naiad", "naiad_sent", HTTP),
    "client_http_aio": ("naiad_aio", "naiad_sent_aio", HTTP),
    "client_grpc": ("naiad", "naiad_sent", GRPC),
    "client_grpc_aio": ("naiad_aio", "naiad_sent_aio", GRPC),
}
Sample = dict[str, float]


def measure(settings: Settings) -> Iterator[Figure]:
    """16 floats on ``identity`` over HTTP and gRPC, threads and coroutines; then tensors of 600 KB and 10 MB each way,
    in shared memory and sent. Server and client are on a core each.
    """
    repository = settings.work / "client"
    fields = (
        models.tensor_field("input", "x", "TYPE_FP32", [-1]),
        models.tensor_field("output", "y", "TYPE_FP32", [-1]),
    )
    models.add_model(repository, "echo", 'backend: "identity"', *fields)
    arguments = ["--allow-client-shm=true"]
    with naiad(repository, settings.work, machine.server_core(), arguments, service=GRPC) as server:
        for name, (ours, theirs, service) in KINDS.items():
            urls = {theirs: f"127.0.0.1:{server.ports[service]}"}
            urls[ours] = f"grpc://{urls[theirs]}" if service == GRPC else urls[theirs]
            for callers in CALLERS:
                yield from _compare(settings, f"{name}_{callers}", urls, ours, theirs, callers)
        for name, (shared, sent, service) in SHARED.items():
            url = f"127.0.0.1:{server.ports[service]}"
            urls = dict.fromkeys((shared, sent), f"grpc://{url}" if service == GRPC else url)
            for size, elements in LARGE.items():
                for callers in CALLERS:
                    yield from _share(settings, f"{name}_{size}_{callers}", urls, elements, callers)


def _share(settings: Settings, name: str, urls: Mapping[str, str], elements: int, callers: int) -> Iterator[Figure]:
    shared, sent = urls
    found = _in_turns(settings, urls, callers, elements)
    ratio = median_ratio(found[shared], found[sent], lambda sample: sample["rate"])
    cpu = median_ratio(found[shared], found[sent], lambda sample: sample["cpu_us"])
    yield Figure(f"{name}_sent_rate", median(found[sent], lambda sample: sample["rate"]), "/s", None, "without regions")
    yield Figure(
        f"{name}_shared_rate", median(found[shared], lambda sample: sample["rate"]), "/s", None, "with regions"
    )
    yield Figure(f"{name}_shared_ratio", ratio, "", None, f"of the rates; {cpu:.2f} of the client's processor time")


def _in_turns(
    settings: Settings, urls: Mapping[str, str], callers: int, elements: int
) -> Mapping[str, Sequence[Sample]]:
    def calls(kind: str) -> Callable[[], Sample]:
        return lambda: _calls(kind, urls[kind], callers, settings.seconds, elements)

    return alternate(settings.rounds, {kind: calls(kind) for kind in urls})


def _compare(
    settings: Settings, name: str, urls: Mapping[str, str], ours: str, theirs: str, callers: int
) -> Iterator[Figure]:
    found = _in_turns(settings, urls, callers, ELEMENTS)
    ratio = median_ratio(found[ours], found[theirs], lambda sample: sample["rate"])
    cpu = median_ratio(found[theirs], found[ours], lambda sample: sample["cpu_us"])
    yield Figure(f"{name}_rate", median(found[ours], lambda sample: sample["rate"]), "/s", None, ours)
    yield Figure(f"{name}_cpu", median(found[ours], lambda sample: sample["cpu_us"]), "us", None, ours)
    note = f"rate over that of tritonclient ({theirs}), which takes {cpu:.1f} times the client's processor time"
    yield Figure(f"{name}_ratio", ratio, "", Bound(">=", 2), note)


def _calls(kind: str, url: str, callers: int, seconds: int, elements: int) -> Sample:
    words = [kind, url, str(callers), str(seconds), str(elements)]
    command = machine.on_core([sys.executable, "-m", "benchmarks.client_calls", *words], machine.client_core())
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=START_SECONDS + 5 * seconds, env=environment
    )
    if done.returncode:
        raise CaseError(f"{kind} with {callers} callers failed: {done.stderr[-2000:]}")
    result: Sample = json.loads(done.stdout.splitlines()[-1])
    return result
