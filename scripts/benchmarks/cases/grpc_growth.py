"""Whether memory grows with the number of gRPC calls and connections served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import numpy as np

from naiad.config.messages import message_class

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..grpc_callers import GrpcCall, run_grpc_calls
from ..grpc_request import INFER, SERVICE, STREAM_INFER, infer_message, typed_message
from ..infer import Array
from ..servers import GRPC, Server, naiad
from ..settings import Settings
from .growth import CHUNK_SECONDS, SAMPLES, SLOPE_BOUND, TOTAL_BOUND, WARM_UP_SHARE, typical_slope

CALLS = 500_000
QUICK_CALLS = 8_000
CALLS_PER_CONNECTION = 25
CALLERS = 16
MODEL = "mlp"
INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, INTERNAL = 3, 5, 12, 13


def measure(settings: Settings) -> Iterator[Figure]:
    """The slope of resident memory over a mix of everything that clients send, and the growth in all."""
    total = QUICK_CALLS if settings.quick else CALLS
    repository = settings.work / "grpc-growth"
    models.add_mlp(repository, MODEL)
    with naiad(repository, settings.work, service=GRPC) as server:
        counts, sizes = sample(server, total)
    growth = (sizes[-1] - sizes[0]) / machine.MIB
    bounds = (None, None) if settings.quick else (Bound("<=", SLOPE_BOUND), Bound("<=", TOTAL_BOUND))
    note = f"{total} mixed calls, {total // CALLS_PER_CONNECTION} connections"
    yield Figure("grpc_growth_slope", kept_slope(counts, sizes), "bytes/call", bounds[0], note)
    reached = f"over these calls, to {sizes[-1] / machine.MIB:.0f} MiB"
    yield Figure("grpc_growth_total", growth, "MiB", bounds[1], reached)


def kept_slope(counts: list[int], sizes: list[int]) -> float:
    """The lesser of the median slope from sample to sample and the slope of the line through all samples.

    What is kept for every call shows in both. An arena that the allocator takes once shows in the line alone; memory
    that grows slowly and falls at once, as when Python collects cycles, shows in the steps alone.
    """
    return min(typical_slope(counts, sizes), float(np.polyfit(counts, sizes, 1)[0]))


def sample(server: Server, total: int) -> tuple[list[int], list[int]]:
    """Serve ``total`` calls after half as many for warming up, and note the resident memory twenty times on the way."""
    kept, closing = mixed_calls(), closing_calls()
    chunk = total // SAMPLES
    for _ in range(round(SAMPLES * WARM_UP_SHARE)):
        serve(server, kept, closing, chunk)
    counts: list[int] = []
    sizes: list[int] = []
    for done in range(chunk, total + 1, chunk):
        serve(server, kept, closing, chunk)
        counts.append(done)
        sizes.append(machine.resident_bytes(server.pid))
    return counts, sizes


def serve(server: Server, kept: Iterator[GrpcCall], closing: Iterator[GrpcCall], calls: int) -> None:
    """``calls`` calls: most over a few lasting connections, then one in 25 over a connection of its own.

    Raises:
        CaseError: a call had another status than it should have, or was lost.
    """
    connections = calls // CALLS_PER_CONNECTION
    for part in (islice(kept, calls - connections), islice(closing, connections)):
        tally = run_grpc_calls(server.port, part, CALLERS, CHUNK_SECONDS)
        if tally.wrong:
            raise CaseError(f"{tally.wrong.total()} of the mixed calls went wrong: {tally.summary()}")


def input_row() -> Array:
    """The row that most calls carry."""
    return np.random.default_rng(0).random((1, 16), np.float32)


def closing_calls() -> Iterator[GrpcCall]:
    """Without end, the same small call, each time over a new connection."""
    call = GrpcCall("new connection", INFER, infer_message(MODEL, {"x": input_row()}), close=True)
    while True:
        yield call


def mixed_calls() -> Iterator[GrpcCall]:
    """Without end, in turns of twenty: eight times the same small call, twelve that no cache has seen or should."""
    row = input_row()
    repeated = GrpcCall("infer", INFER, infer_message(MODEL, {"x": row}))
    for number in count():
        turn = number % 20
        yield repeated if turn < 8 else _one_of_a_kind(turn, number, row)


def _one_of_a_kind(turn: int, number: int, row: Array) -> GrpcCall:
    plain = infer_message(MODEL, {"x": row}, request_id=f"call-{number}")
    match turn:
        case 8 | 9:
            return GrpcCall("id", INFER, plain)
        case 10:
            metadata = (("x-call", f"number {number}"), ("grpc-timeout", f"{10_000 + number % 90_000}m"))
            return GrpcCall("metadata", INFER, plain, metadata=metadata)
        case 11:
            return GrpcCall("many rows", INFER, infer_message(MODEL, {"x": np.full((64, 16), number, np.float32)}))
        case 12:
            return GrpcCall("typed contents", INFER, typed_message(MODEL, "x", row + number))
        case 13:
            return _question(number)
        case 14:
            unknown = infer_message(f"unknown-{number}", {"x": row})
            return GrpcCall("unknown model", INFER, unknown, (NOT_FOUND,))
        case 15:
            shape = np.zeros((1, 17 + number % 1000), np.float32)
            return GrpcCall("wrong shape", INFER, infer_message(MODEL, {"x": shape}), (INVALID_ARGUMENT,))
        case 16:
            return GrpcCall("broken message", INFER, plain[:-5], (INVALID_ARGUMENT, INTERNAL))
        case 17:
            return GrpcCall("unknown method", f"{SERVICE}/Method{number}", b"", (UNIMPLEMENTED,))
        case 18:
            return GrpcCall("stream", STREAM_INFER, plain)
        case _:
            return GrpcCall("cancelled", INFER, plain, cancel=True)


def _question(number: int) -> GrpcCall:
    """One of the questions that clients ask between inferences."""
    method = ("ServerReady", "ServerMetadata", "ModelMetadata", "ModelStatistics")[number // 20 % 4]
    request = message_class(f"{method}Request")()
    if method.startswith("Model"):
        request.name = MODEL
    return GrpcCall(method, f"{SERVICE}/{method}", request.SerializeToString())
