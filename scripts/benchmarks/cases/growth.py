"""Whether memory grows with the number of requests served."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice, pairwise

import numpy as np

from .. import machine, models
from ..closed_loop import Call, expect_status, run_calls
from ..figures import Bound, CaseError, Figure
from ..infer import Array, Request, binary_request, infer_path, json_request
from ..servers import Server, naiad
from ..settings import Settings
from ..tally import Tally

REQUESTS = 200_000
QUICK_REQUESTS = 8_000
SAMPLES = 20
WARM_UP_SHARE = 0.5
CONNECTIONS = 16
CHUNK_SECONDS = 120.0
SLOPE_BOUND = 4.0
TOTAL_BOUND = 2.0


def measure(settings: Settings) -> Iterator[Figure]:
    """The slope of resident memory over a mix of everything that clients send."""
    total = QUICK_REQUESTS if settings.quick else REQUESTS
    repository = settings.work / "growth"
    models.add_mlp(repository)
    with naiad(repository, settings.work) as server:
        counts, sizes = sample(server, mixed_calls(), total)
    yield from figures("growth", settings, counts, sizes, "mixed requests")


def figures(name: str, settings: Settings, counts: list[int], sizes: list[int], what: str) -> Iterator[Figure]:
    """The slope and the whole of what was noted of the memory."""
    growth = (sizes[-1] - sizes[0]) / machine.MIB
    bounds = (None, None) if settings.quick else (Bound("<=", SLOPE_BOUND), Bound("<=", TOTAL_BOUND))
    yield Figure(f"{name}_slope", typical_slope(counts, sizes), "bytes/request", bounds[0], f"{counts[-1]} {what}")
    yield Figure(
        f"{name}_total", growth, "MiB", bounds[1], f"over these requests, to {sizes[-1] / machine.MIB:.0f} MiB"
    )


def typical_slope(counts: list[int], sizes: list[int]) -> float:
    """The median of the slopes from one sample to the next.

    What is kept for every request shows in each of them; the allocator taking one more arena, once, shows in one.
    """
    steps = zip(pairwise(counts), pairwise(sizes), strict=True)
    return float(np.median([(after - before) / (n - m) for (m, n), (before, after) in steps]))


def sample(server: Server, calls: Iterator[Call], total: int) -> tuple[list[int], list[int]]:
    """Serve ``total`` of ``calls`` after a warm-up, and note the resident memory every twentieth of the way.

    ``calls`` have no end. The warm-up is half as many: caches and the allocator's arenas reach their size in a few
    large steps, and one such step looks like a slope.
    """
    chunk = total // SAMPLES
    check(run_calls(server.port, islice(calls, round(total * WARM_UP_SHARE)), CONNECTIONS, CHUNK_SECONDS))
    counts: list[int] = []
    sizes: list[int] = []
    for done in range(chunk, total + 1, chunk):
        check(run_calls(server.port, islice(calls, chunk), CONNECTIONS, CHUNK_SECONDS))
        counts.append(done)
        sizes.append(machine.resident_bytes(server.pid))
    return counts, sizes


def check(tally: Tally) -> None:
    """Every answer has a known status.

    Raises:
        CaseError: one had another, or was lost.
    """
    if tally.wrong:
        raise CaseError(f"{tally.wrong.total()} of the requests went wrong: {tally.summary()}")


def mixed_calls() -> Iterator[Call]:
    """Without end, in turns of twenty: eight times the same small request, twelve that no cache has seen or should."""
    row = np.random.default_rng(0).random((1, 16), np.float32)
    plain = binary_request("mlp", {"x": row}, "y")
    repeated = Call("infer", plain.wire(), expect_status(200))
    reconnecting = Call("new connection", plain.wire(close=True), expect_status(200), close=True)
    for number in count():
        turn = number % 20
        if turn < 8:
            yield repeated
        elif turn < 19:
            yield _one_of_a_kind(turn, number, row)
        else:
            yield reconnecting


def _one_of_a_kind(turn: int, number: int, row: Array) -> Call:
    match turn:
        case 8 | 9 | 10 | 11:
            request = binary_request("mlp", {"x": row}, "y", request_id=f"request-{number}")
            return Call("id", request.wire(), expect_status(200))
        case 12:
            return Call("server metadata", _get("/v2"), expect_status(200))
        case 13:
            return Call("model metadata", _get("/v2/models/mlp"), expect_status(200))
        case 14:
            return Call("json", _json_infer(f"json-{number}", [1, 16]).wire(), expect_status(200))
        case 15:
            request = binary_request(f"unknown-{number}", {"x": row}, "y")
            return Call("unknown model", request.wire(), expect_status(404))
        case 16:
            return Call("wrong shape", _json_infer(f"shape-{number}", [1, 17 + number]).wire(), expect_status(400))
        case 17:
            broken = Request(
                infer_path("mlp"), {"Content-Type": "application/json"}, b'{"id": "%d", "inputs": [' % number
            )
            return Call("broken JSON", broken.wire(), expect_status(400))
        case _:
            return Call("unknown path", _get(f"/v2/nothing/{number}"), expect_status(404))


def _json_infer(request_id: str, shape: list[int]) -> Request:
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": [0.5] * 16}
    return json_request("mlp", {"id": request_id, "inputs": [tensor]})


def _get(path: str) -> bytes:
    return Request(path, {}, b"", method="GET").wire()
