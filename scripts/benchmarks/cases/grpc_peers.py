"""The identity model on Naiad and on grpcio's own servers: how much a stack of one's own saves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from .. import machine
from ..figures import Figure
from ..grpc_request import import_grpc
from ..h2load import Fan, GrpcLoad, compare_grpc
from ..rounds import median, median_ratio
from ..servers import GRPC, naiad, peer
from ..settings import Settings
from .grpc_unary import LARGE, NOTES, SMALL, contender, cpu_us, identity_repository, rate

FANS = {SMALL: (Fan(1, 1), Fan(16, 1), Fan(4, 16)), LARGE: (Fan(1, 1), Fan(16, 1))}
NAMES = {SMALL: "peers", LARGE: "peers_large"}
PEERS = {"aio": "grpc.aio", "sync": "grpc with 8 threads"}


def measure(settings: Settings) -> Iterator[Figure]:
    """Rates of the three servers in turns, server and client on a core each."""
    import_grpc()
    core = machine.server_core()
    with ExitStack() as stack:
        repository = identity_repository(settings, "grpc-peers")
        servers = {
            "naiad": stack.enter_context(naiad(repository, settings.work, core, service=GRPC)),
            "aio": stack.enter_context(peer("aio", settings.work, core)),
            "sync": stack.enter_context(peer("sync", settings.work, core)),
        }
        for elements, fans in FANS.items():
            contenders = {name: contender(server, elements) for name, server in servers.items()}
            for fan in fans:
                yield from figures(f"{NAMES[elements]}_{fan}", NOTES[elements], compare_grpc(settings, contenders, fan))


def figures(name: str, note: str, loads: dict[str, list[GrpcLoad]]) -> Iterator[Figure]:
    """The lines of the table for one size and one way to spread the calls."""
    ours = loads["naiad"]
    yield _rate(f"{name}_naiad", ours, note)
    for kind, title in PEERS.items():
        theirs = loads[kind]
        yield _rate(f"{name}_{kind}", theirs, title)
        yield Figure(f"{name}_to_{kind}", median_ratio(ours, theirs, rate), f"times {title}", note="rate, pair by pair")
        cheaper = median_ratio(theirs, ours, cpu_us)
        yield Figure(f"{name}_saved_{kind}", cheaper, "times cheaper", note="processor time, pair by pair")


def _rate(name: str, loads: list[GrpcLoad], note: str) -> Figure:
    return Figure(name, median(loads, rate), "calls/s", note=f"{note}; {median(loads, cpu_us):.1f} CPU us/call")
