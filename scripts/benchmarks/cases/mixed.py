"""Bad requests sent beside good ones into the same batches: every good one must get its own right answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle, islice

import numpy as np

from .. import models
from ..closed_loop import Answer, Call, expect_status, run_calls, shown
from ..figures import Bound, CaseError, Figure
from ..infer import Array, Request, ask, binary_request, infer_path, json_request, read_outputs, with_header
from ..servers import naiad
from ..settings import Settings
from ..tally import Tally

MODEL = "picky"
MAX_BATCH_SIZE = 16
QUEUE_DELAY_US = 5_000
GOOD = 150
CONNECTIONS = 30
LIMIT_SECONDS = 60.0
HUGE = 2**62


def measure(settings: Settings) -> Iterator[Figure]:
    """150 good requests beside as many that are refused, then beside as many that make the model itself fail."""
    repository = settings.work / "mixed"
    models.add_picky(repository, MODEL, MAX_BATCH_SIZE, QUEUE_DELAY_US)
    with naiad(repository, settings.work) as server:
        refused = run_calls(server.port, beside(list(refused_calls())), CONNECTIONS, LIMIT_SECONDS)
        rows_per_batch = mean_batch(server.port)
        failing = run_calls(server.port, beside([failing_call()]), CONNECTIONS, LIMIT_SECONDS)
    yield Figure("beside_batch", rows_per_batch, "requests/batch", note="how many of them shared a batch")
    yield from figures("beside_refused", refused)
    yield from figures("beside_failing", failing)


def mean_batch(port: int) -> float:
    """Requests per execution so far, from the model's own statistics."""
    status, _, body = ask(port, Request(f"/v2/models/{MODEL}/stats", {}, b"", method="GET"))
    if status != 200:
        raise CaseError(f"the statistics of {MODEL} answered {status}: {shown(body)}")
    counts = json.loads(body)["model_stats"][0]
    return float(counts["inference_count"] / counts["execution_count"])


def figures(name: str, tally: Tally) -> Iterator[Figure]:
    """How many good requests were answered rightly, and how many bad ones as they should be."""
    bad = tally.right.total() - tally.right["good"]
    yield Figure(f"{name}_good", tally.right["good"], f"of {GOOD}", Bound("=", GOOD), tally.summary())
    yield Figure(f"{name}_bad", bad, f"of {GOOD}", Bound("=", GOOD), "bad requests answered as they should be")


def beside(bad: list[Call]) -> Iterator[Call]:
    """Good and bad requests in turns, so that they wait in the same queue."""
    random = np.random.default_rng(5)
    for call in islice(cycle(bad), GOOD):
        yield good_call(random)
        yield call


def good_call(random: np.random.Generator) -> Call:
    """A request of random values that is right only when its own answer comes back."""
    x, row = random.random((1, 16), np.float32), random.integers(0, models.TABLE_ROWS, (1, 1))
    expected = models.mlp_by_hand(x) + models.lookup_table()[row[:, 0]]
    return Call("good", picky_request(x, row).wire(), expect_values(expected))


def picky_request(x: Array, row: Array) -> Request:
    """A well-formed request."""
    return binary_request(MODEL, {"x": x, "row": row}, "y")


def expect_values(expected: Array) -> Callable[[Answer], str]:
    """A judge that asks for 200 and these values."""

    def judge(answer: Answer) -> str:
        if answer.status != 200:
            return expect_status(200)(answer)
        found = read_outputs(answer.body, answer.header_length)["y"]
        same = found.shape == expected.shape and np.allclose(found, expected, rtol=1e-3, atol=1e-4)
        return "" if same else f"got the values {found.ravel()[:3]}..., expected {expected.ravel()[:3]}..."

    return judge


def failing_call() -> Call:
    """A request that no check can refuse and that makes the network fail while it runs."""
    x, row = np.zeros((1, 16), np.float32), np.full((1, 1), 10**6, np.int64)
    return Call("model error", picky_request(x, row).wire(), expect_status(400, 500))


def refused_calls() -> Iterator[Call]:
    """Requests that are wrong in themselves, and one of NaN, which is right and must not reach its neighbours."""
    refused = expect_status(400)
    row = np.zeros((1, 1), np.int64)
    nan = np.full((1, 16), np.nan, np.float32)
    yield Call("NaN", picky_request(nan, row).wire(), expect_nan)
    yield Call("wrong shape", picky_request(np.zeros((1, 17), np.float32), row).wire(), refused)
    yield Call("wrong rank", picky_request(np.zeros((1, 4, 4), np.float32), row).wire(), refused)
    yield Call("wrong type", picky_request(np.zeros((1, 16), np.int32), row).wire(), refused)
    yield Call(
        "too many rows", picky_request(np.zeros((17, 16), np.float32), np.zeros((17, 1), np.int64)).wire(), refused
    )
    yield Call("missing input", binary_request(MODEL, {"x": np.zeros((1, 16), np.float32)}, "y").wire(), refused)
    yield Call("unknown output", binary_request(MODEL, {"x": nan, "row": row}, "z").wire(), refused)
    yield Call("huge shape", _as_json([HUGE, 16], [0.0] * 16).wire(), refused)
    yield Call("overflowing shape", _as_json([HUGE, HUGE], [0.0] * 16).wire(), refused)
    yield Call("too few values", _as_json([1, 16], [0.0] * 15).wire(), refused)
    yield Call("text for numbers", _as_json([1, 16], ["a"] * 16).wire(), refused)
    yield Call("NaN in JSON", _as_json([1, 16], [float("nan")] * 16).wire(), expect_status(200, 400))
    yield Call("deep JSON", _raw(b"[" * 5000).wire(), refused)
    yield Call("broken JSON", _raw(b'{"inputs": [{"name": "x", ').wire(), refused)
    yield Call("truncated data", _misfit(declared=64, sent=60).wire(), refused)
    yield Call("surplus data", _misfit(declared=64, sent=68).wire(), refused)


def expect_nan(answer: Answer) -> str:
    """A judge that asks for 200 and nothing but NaN."""
    if answer.status != 200:
        return expect_status(200)(answer)
    found = read_outputs(answer.body, answer.header_length)["y"]
    return "" if np.isnan(found).all() else f"got the values {found.ravel()[:3]}..., expected NaN"


def _as_json(shape: list[int], data: list[float] | list[str]) -> Request:
    x = {"name": "x", "shape": shape, "datatype": "FP32", "data": data}
    row = {"name": "row", "shape": [1, 1], "datatype": "INT64", "data": [0]}
    return json_request(MODEL, {"inputs": [x, row]})


def _raw(body: bytes) -> Request:
    return Request(infer_path(MODEL), {"Content-Type": "application/json"}, body)


def _misfit(declared: int, sent: int) -> Request:
    row = {"name": "row", "shape": [1, 1], "datatype": "INT64", "data": [0]}
    x = {"name": "x", "shape": [1, 16], "datatype": "FP32", "parameters": {"binary_data_size": declared}}
    return with_header(MODEL, {"inputs": [row, x]}, bytes(sent))
