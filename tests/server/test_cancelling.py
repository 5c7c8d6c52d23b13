"""Callers that give up, are gone or run out of time: counted by the reason, wherever their request is by then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from naiad.testing import request_bytes, wait_until
from support.python_models import Client, client_of, write_python_model
from support.served_transports import TRANSPORTS

BODY = b'{"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 1], "data": [30]}]}'
# A process that asks, and is killed while it waits.
CALLER = """
import sys
import numpy as np
import tritonclient.grpc

given = tritonclient.grpc.InferInput("X", (1, 1), "FP32")
given.set_data_from_numpy(np.full((1, 1), 30, np.float32))
tritonclient.grpc.InferenceServerClient(sys.argv[1]).infer("works", [given])
"""
# Works for so many seconds, or until nobody waits; notes both.
WORKS = """
class TritonPythonModel:
    def execute(self, requests):
        (request,) = requests
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        self.note("begun")
        end = time.time() + float(x.flat[0])
        while time.time() < end and not request.is_cancelled():
            time.sleep(0.001)
        self.note("cancelled" if request.is_cancelled() else "done")
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * x)])]

    def note(self, text):
        with open(os.path.join(os.path.dirname(__file__), "notes"), "a") as notes:
            notes.write(text + " ")
"""
# Calls the model that works, twice at the same time.
CALLS = """
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X")
            calls = [pb_utils.InferenceRequest(model_name="works", requested_output_names=["Y"], inputs=[x])
                     for _ in range(2)]
            found = await asyncio.gather(*[call.async_exec() for call in calls])
            errors = [f.error().message() for f in found if f.has_error()]
            with open(os.path.join(os.path.dirname(__file__), "notes"), "a") as notes:
                notes.write("/".join(errors) + "|")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x.as_numpy())]))
        return answers
"""


@pytest.fixture(scope="module", params=TRANSPORTS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("cancelling")
    write_python_model(folder / "models", "works", WORKS, "max_batch_size: 1")
    write_python_model(folder / "models", "calls", CALLS, "max_batch_size: 8")
    with client_of(folder / "models", folder / "log", "--grpc-transport", request.param) as found:
        yield found


@pytest.fixture
def notes(client: Client) -> Iterator[Callable[[str], str]]:
    folder = client.server.log_file.parent / "models"

    def read(model: str) -> str:
        file = folder / model / "1" / "notes"
        return file.read_text() if file.exists() else ""

    yield read
    for model in ("works", "calls"):
        (folder / model / "1" / "notes").unlink(missing_ok=True)


def metric(client: Client, name: str) -> int:
    page = client.server.metrics_page()
    return int(float(next(line for line in page.splitlines() if line.startswith(name)).split()[-1]))


def cancelled(client: Client) -> dict[str, int]:
    reasons = ("client_cancel", "disconnect", "deadline")
    return {reason: metric(client, f'naiad_calls_cancelled{{reason="{reason}"}}') for reason in reasons}


def failed(client: Client, model: str) -> int:
    return metric(client, f'nv_inference_request_failure{{model="{model}",reason="CANCELED"')


def ask(client: Client, model: str) -> Callable[[], object]:
    """Ask over gRPC; what cancels it."""
    given = tritonclient.grpc.InferInput("X", (1, 1), "FP32")
    given.set_data_from_numpy(np.full((1, 1), 30, np.float32))
    call = client.grpc.async_infer(model, [given], lambda result, error: None)
    return call.cancel


@pytest.mark.slow
def test_each_reason_is_counted_for_itself(client: Client, notes: Callable[[str], str]) -> None:
    before, failures = cancelled(client), failed(client, "works")
    stop = ask(client, "works")
    wait_until(lambda: notes("works") == "begun ", 10, "one runs")

    cancel = ask(client, "works")
    client.server.wait_pending("works", 1)
    cancel()
    client.server.wait_pending("works", 0)

    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        client.infer("works", 30, client_timeout=0.5)
    client.server.wait_pending("works", 0)

    with client.server.connect() as peer:
        peer.sendall(request_bytes("POST", "/v2/models/works/infer", BODY))
        client.server.wait_pending("works", 1)
    client.server.wait_pending("works", 0)
    assert failed(client, "works") == failures + 3

    stop()
    wait_until(lambda: notes("works") == "begun cancelled ", 10, "the one that runs is told")
    after = {"client_cancel": 2, "disconnect": 1, "deadline": 1}
    wait_until(lambda: cancelled(client) == {r: before[r] + n for r, n in after.items()}, 5, "all are counted")


def test_a_connection_that_ends_is_no_cancel(client: Client, notes: Callable[[str], str]) -> None:
    before = cancelled(client)
    caller = subprocess.Popen([sys.executable, "-c", CALLER, client.server.grpc_url])
    try:
        wait_until(lambda: notes("works") == "begun ", 10, "it runs")
    finally:
        caller.kill()
        caller.wait()
    wait_until(lambda: notes("works") == "begun cancelled ", 10, "it is told")
    # grpcio does not tell a caller that cancels from one that is gone.
    reason = "client_cancel" if "grpcio" in client.server.process.args else "disconnect"
    wait_until(lambda: cancelled(client) == before | {reason: before[reason] + 1}, 5, "it is counted")


def test_what_a_model_calls_goes_with_its_caller(client: Client, notes: Callable[[str], str]) -> None:
    """The one call runs and its model is told, the other is in the queue and leaves it."""
    failures = failed(client, "works")
    cancel = ask(client, "calls")
    wait_until(lambda: notes("works") == "begun ", 10, "a call runs")
    client.server.wait_pending("works", 1)
    cancel()
    wait_until(lambda: notes("works") == "begun cancelled ", 10, "the called model is told")
    client.server.wait_pending("works", 0)
    wait_until(lambda: "was cancelled by its caller|" in notes("calls"), 10, "the calling model is told")
    assert failed(client, "works") == failures + 1
    assert metric(client, "naiad_requests_in_flight ") == 0


def test_what_a_model_calls_for_others_stays(client: Client, notes: Callable[[str], str]) -> None:
    """Of two callers one leaves: the calls go on, since they may be made for the other."""
    first = ask(client, "calls")
    wait_until(lambda: notes("works") == "begun ", 10, "a call runs")
    second = ask(client, "calls")
    client.server.wait_pending("calls", 1)
    second()
    client.server.wait_pending("calls", 0)
    client.server.wait_pending("works", 1)
    assert notes("works") == "begun "
    first()
    wait_until(lambda: notes("works") == "begun cancelled ", 10, "the called model is told")
