"""Why a caller goes, crossed with where its request is by then: it is gone at once, and counts once, by its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import request_bytes, wait_until
from server.test_cancelling import BODY, CALLS, WORKS, ask, cancelled, failed, metric
from support.python_models import Client, client_of, write_python_model
from support.served_ensembles import step, write_ensemble
from support.served_models import write_model

X_TO_Y = {"X": "X"}, {"Y": "Y"}
FLOATS = {"X": "TYPE_FP32 -1"}, {"Y": "TYPE_FP32 -1"}
FORMS = """
backend: "identity" max_batch_size: 8
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ] output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 60000000 }
"""


NONE: Mapping[str, int] = MappingProxyType({})


class Place(NamedTuple):
    """Where a request to ``model`` is.

    ``blocked``: the model that a request has to be at work in before. ``runs``: whether a model works for it, and has
    to be told. ``waits``: how many requests wait then, by model. ``failures``: what counts as given up, by model.
    """

    model: str
    blocked: str = ""
    runs: bool = False
    waits: Mapping[str, int] = NONE
    failures: Mapping[str, int] = NONE


PLACES = {
    "in a process": Place("works", runs=True),
    "in a queue": Place("works", "works", waits={"works": 1}, failures={"works": 1}),
    "in a batch that grows": Place("forms", waits={"forms": 1}, failures={"forms": 1}),
    "in a process, as a step": Place("around", runs=True, failures={"around": 1}),
    "in a queue, as a step": Place("around", "works", waits={"works": 1}, failures={"works": 1, "around": 1}),
    "in a queue, two ensembles deep": Place(
        "nested", "works", waits={"works": 1}, failures={"works": 1, "around": 1, "nested": 1}
    ),
    "a step whose turn has not come": Place("paced", "paced", failures={"paced": 1}),
    "two calls of a model, in a process and a queue": Place(
        "calls", runs=True, waits={"works": 1}, failures={"works": 1}
    ),
    "calls of an ensemble": Place("calls_around", runs=True, waits={"works": 1}, failures={"works": 1, "around": 2}),
    "calls of a model, as a step": Place(
        "around_calls", runs=True, waits={"works": 1}, failures={"works": 1, "around_calls": 1}
    ),
}
COUNTED = ("works", "forms", "around", "nested", "paced", "calls", "calls_around", "around_calls")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("places")
    models = folder / "models"
    write_python_model(models, "works", WORKS, "max_batch_size: 1")
    write_python_model(models, "calls", CALLS, "max_batch_size: 8")
    write_python_model(models, "calls_around", CALLS.replace('"works"', '"around"'), "max_batch_size: 8")
    write_model(models, "forms", FORMS)
    for name, member, scheduling in (
        ("around", "works", ""),
        ("nested", "around", ""),
        ("paced", "works", "max_inflight_requests: 1"),
        ("around_calls", "calls", ""),
    ):
        steps = [step(member, *X_TO_Y)]
        write_ensemble(models, name, *steps, inputs=FLOATS[0], outputs=FLOATS[1], batch=1, scheduling=scheduling)
    with client_of(models, folder / "log") as found:
        yield found


@pytest.fixture
def notes(client: Client) -> Iterator[Callable[[], str]]:
    file = client.server.log_file.parent / "models" / "works" / "1" / "notes"
    yield lambda: file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)


def in_flight(client: Client) -> int:
    return metric(client, "naiad_requests_in_flight ")


def cancels(client: Client, model: str, there: Callable[[], None]) -> None:
    cancel = ask(client, model)
    there()
    cancel()


def disconnects(client: Client, model: str, there: Callable[[], None]) -> None:
    with client.server.connect() as peer:
        peer.sendall(request_bytes("POST", f"/v2/models/{model}/infer", BODY))
        there()


def is_late(client: Client, model: str, there: Callable[[], None]) -> None:
    given = tritonclient.grpc.InferInput("X", (1, 1), "FP32")
    given.set_data_from_numpy(np.full((1, 1), 30, np.float32))
    errors: list[InferenceServerException] = []
    client.grpc.async_infer(model, [given], lambda result, error: errors.append(error), client_timeout=2.5)
    there()
    wait_until(lambda: errors, 10, "the caller has its error")
    assert "Deadline Exceeded" in str(errors[0])


LEAVES = {"client_cancel": cancels, "disconnect": disconnects, "deadline": is_late}


# A deadline of seconds is waited for, and ends a call as a client that cancels does.
SLOW = {"deadline": pytest.mark.slow}


@pytest.mark.parametrize("reason", [pytest.param(reason, marks=SLOW.get(reason, ())) for reason in LEAVES])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_whoever_goes_is_gone_at_once_wherever_it_is(
    client: Client, notes: Callable[[], str], place: Place, reason: str
) -> None:
    with ExitStack() as stack:
        if place.blocked:
            stack.callback(lambda: wait_until(lambda: notes() == "begun cancelled ", 10, "the one before is told"))
            stack.callback(ask(client, place.blocked))
            wait_until(lambda: notes() == "begun ", 10, "one runs before it")
        held = in_flight(client)
        reasons = cancelled(client)
        failures = {model: failed(client, model) for model in COUNTED}

        def there() -> None:
            if place.runs:
                wait_until(lambda: notes() == "begun ", 10, "a model works for it")
            for model, count in place.waits.items():
                client.server.wait_pending(model, count)
            wait_until(lambda: in_flight(client) > held, 10, "it was accepted")

        LEAVES[reason](client, place.model, there)
        wait_until(lambda: in_flight(client) == held, 10, "nothing of it is held")
        if place.runs:
            wait_until(lambda: notes() == "begun cancelled ", 10, "the model that works is told")
        for model in place.waits:
            client.server.wait_pending(model, 0)
        expected = reasons | {reason: reasons[reason] + 1}
        wait_until(lambda: cancelled(client) == expected, 10, "it counts once, by its reason")
        wanted = {model: count + place.failures.get(model, 0) for model, count in failures.items()}
        assert {model: failed(client, model) for model in COUNTED} == wanted
        if place.blocked:
            assert notes() == "begun "
    wait_until(lambda: in_flight(client) == 0, 10, "nothing is left")
    assert client.infer("works", 0).tolist() == [[0]]
