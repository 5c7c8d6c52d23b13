"""The extra cost of data in JSON over binary data."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np
import orjson

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..infer import Array, Request, ask_well, binary_request, check_answer, json_request
from ..load import generator, measure
from ..rounds import alternate
from ..servers import naiad
from ..settings import Settings

SMALL, MANY = 16, 1000
CONNECTIONS = 32
SMALL_BOUND = Bound("<=", 15.0)
MANY_BOUND = Bound("<=", 1.3)
TURNS = 1000


def json_pairs(settings: Settings) -> Iterator[Figure]:
    """Processor time of a request of 16 and of 1,000 floats each way, JSON and binary in turns, server pinned."""
    repository = settings.work / "json"
    models.add_identity(repository, "identity", [-1], max_batch_size=8)
    with naiad(repository, settings.work, machine.server_core()) as server:
        measures: dict[str, Callable[[], float]] = {}
        for size in (SMALL, MANY):
            values = np.random.default_rng(size).random((1, size), np.float32)
            binary = binary_request("identity", {"INPUT0": values}, "OUTPUT0")
            check_answer(server.port, binary, "OUTPUT0", values)
            in_json = request_of(values)
            check_json(server.port, in_json, values)
            for kind, request in (("binary", binary), ("json", in_json)):
                take = partial(measure, server, request, CONNECTIONS, settings.seconds, settings.work)
                take()
                measures[f"json_{size}_{kind}"] = lambda take=take: take().cpu_us
            measures[f"json_{size}_plain"] = partial(plain_us, in_json.body)
        found = alternate(settings.rounds, measures)
    for size in (SMALL, MANY):
        binary_us, json_us, parts_us = (found[f"json_{size}_{kind}"] for kind in ("binary", "json", "plain"))
        more_us = [ours - least for ours, least in zip(json_us, binary_us, strict=True)]
        note = f"{size} floats each way, {CONNECTIONS} connections, by {generator()}"
        yield Figure(f"json_{size}_binary_cpu", median(binary_us), "CPU us/request", note=note)
        yield Figure(f"json_{size}_cpu", median(json_us), "CPU us/request")
        yield Figure(
            f"json_{size}_more", median(more_us), "CPU us", SMALL_BOUND if size == SMALL else None, "pair by pair"
        )
        yield Figure(f"json_{size}_plain", median(parts_us), "CPU us", note="orjson both ways and a copy, in a loop")
        ratio = median([more / least for more, least in zip(more_us, parts_us, strict=True)])
        yield Figure(f"json_{size}_ratio", ratio, "more / plain", MANY_BOUND if size == MANY else None)


def request_of(values: Array) -> Request:
    """A request with FP32 data in JSON, as clients write them."""
    data = [float(str(value)) for value in values.ravel()]
    given = {"name": "INPUT0", "shape": list(values.shape), "datatype": "FP32", "data": data}
    return json_request("identity", {"inputs": [given]})


def check_json(port: int, request: Request, expected: Array) -> None:
    """Send ``request`` once and compare the answer.

    Raises:
        CaseError: it is not 200, or has other values.
    """
    _, body = ask_well(port, request)
    (answer,) = json.loads(body)["outputs"]
    if answer["shape"] != list(expected.shape) or not np.array_equal(
        np.array(answer["data"], np.float32), expected.ravel()
    ):
        raise CaseError(f"{request.path} gave other values than it got: {body[:200].decode(errors='replace')}")


def plain_us(body: bytes) -> float:
    """The time to parse ``body``, copy it into an array and write that as JSON, on the server's core."""
    with machine.held_on(os.getpid(), machine.server_core()):
        began = time.process_time()
        for _ in range(TURNS):
            values = np.array(orjson.loads(body)["inputs"][0]["data"], np.float32)
            orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
        return (time.process_time() - began) / TURNS * 1e6
