"""600 KB each way inside JSON, as base64 text and as numbers, and behind JSON as binary data."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import numpy as np

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..infer import Array, Request, ask_well, binary_request, check_answer, json_request
from ..load import Contender, Load, compare
from ..rounds import median, median_ratio
from ..servers import naiad
from ..settings import Settings
from .json_pairs import check_json, request_of

VALUES = 3 * 224 * 224
CONNECTIONS = (1, 4)
BOUND = Bound(">=", 5.0)


def json_base64(settings: Settings) -> Iterator[Figure]:
    """Rates and processor time of the three forms in turns, server and load on a core each."""
    repository = settings.work / "json-base64"
    models.add_identity(repository, "identity", [-1], max_batch_size=8)
    values = np.random.default_rng(0).random((1, VALUES), np.float32)
    with naiad(repository, settings.work, machine.server_core()) as server:
        requests = {
            "b64": encoded_request(values),
            "numbers": request_of(values),
            "binary": binary_request("identity", {"INPUT0": values}, "OUTPUT0"),
        }
        check_encoded(server.port, requests["b64"], values)
        check_json(server.port, requests["numbers"], values)
        check_answer(server.port, requests["binary"], "OUTPUT0", values)
        contenders = {name: Contender(server, request) for name, request in requests.items()}
        for connections in CONNECTIONS:
            yield from figures(connections, compare(settings, contenders, connections))


def encoded_request(values: Array) -> Request:
    """A request with FP32 data as base64 text, which asks for the same."""
    text = base64.b64encode(values.tobytes()).decode()
    given = {"name": "INPUT0", "shape": list(values.shape), "datatype": "FP32", "data": {"b64": text}}
    return json_request("identity", {"parameters": {"binary_data_encoding": "base64"}, "inputs": [given]})


def check_encoded(port: int, request: Request, expected: Array) -> None:
    """Send ``request`` once and compare the answer.

    Raises:
        CaseError: it is not 200, or has other values.
    """
    _, body = ask_well(port, request)
    (answer,) = json.loads(body)["outputs"]
    if base64.b64decode(answer["data"]["b64"], validate=True) != expected.tobytes():
        raise CaseError(f"{request.path} gave other values than it got: {body[:200].decode(errors='replace')}")


def figures(connections: int, loads: dict[str, list[Load]]) -> Iterator[Figure]:
    """The lines of the table for one number of connections."""
    name = f"json_b64_{connections}"
    for form, note in (("b64", "base64 each way"), ("numbers", "numbers each way"), ("binary", "binary data each way")):
        cpu_us = median(loads[form], lambda load: load.cpu_us)
        note = f"600 KB as {note}; {cpu_us:,.0f} CPU us/request; connections: {connections}"
        yield Figure(f"{name}_{form}_rate", median(loads[form], _rate), "requests/s", note=note)
    ratio = median_ratio(loads["b64"], loads["numbers"], _rate)
    yield Figure(f"{name}_ratio", ratio, "times the rate of numbers", BOUND, "pair by pair")
    saved = median_ratio(loads["numbers"], loads["b64"], lambda load: load.cpu_us)
    yield Figure(f"{name}_saved", saved, "times cheaper than numbers", BOUND, "processor time, pair by pair")
    dearer = median_ratio(loads["b64"], loads["binary"], lambda load: load.cpu_us)
    yield Figure(f"{name}_to_binary", dearer, "times binary data", note="processor time, pair by pair")


def _rate(load: Load) -> float:
    return load.rate
