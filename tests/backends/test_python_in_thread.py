"""Python models with ``execution=thread``: they run in the server, and say what only a process can do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from naiad.testing import RunningServer, serving, wait_until
from support.config_texts import parameter
from support.python_models import DOUBLES, TENSORS, Client, write_python_model
from support.served_ensembles import step, write_ensemble

THREAD = f"max_batch_size: 8 {parameter('execution', 'thread')}"
# What it does is told by the first number of its input.
ACTS = """
from .numbers_of_mine import OFFSET

class TritonPythonModel:
    def initialize(self, args):
        self.kept = np.zeros((1, 1), np.float32)
        assert json_of(args)["name"] == "acts" and args["model_version"] == "1"

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = request.inputs()[0].as_numpy()
        what = int(x.flat[0])
        if what == 1:
            raise ValueError("no such number")
        if what == 2:
            error = pb_utils.TritonError("not today", pb_utils.TritonError.NOT_FOUND)
            return pb_utils.InferenceResponse(error=error)
        if what == 3:
            return "nothing"
        if what == 4:
            x += 1
        if what == 5:
            other = pb_utils.InferenceRequest(model_name="acts", inputs=request.inputs(), requested_output_names=["Y"])
            other.exec()
        if what == 6:
            request.get_response_sender().send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        if what == 7:
            pb_utils.MetricFamily(name="own", description="own", kind=pb_utils.MetricFamily.COUNTER)
        if what == 8:
            sys.exit("enough")
        if what == 9:
            said = [request.request_id(), request.parameters(), sorted(request.requested_output_names())]
            said.append(os.path.basename(pb_utils.get_model_dir()))
            pb_utils.Logger.log_warn("said " + repr(said) + " in " + str(os.getpid()))
        # The same array each time: what was given before must not change with it.
        self.kept[0, 0] = what + OFFSET
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.kept), pb_utils.Tensor("Z", x)])


def json_of(args):
    import json
    return json.loads(args["model_config"])
"""
WAITS = """
import asyncio

class TritonPythonModel:
    async def execute(self, requests):
        await asyncio.sleep(0)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy())]) for r in requests]
"""
STRINGS = """
class TritonPythonModel:
    def execute(self, requests):
        found = [r.inputs()[0].as_numpy() for r in requests]
        answers = [np.array([[e.decode() + "!" for e in row] for row in x], object) for x in found]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", a)]) for a in answers]
"""
NOTES_ITS_END = """
class TritonPythonModel:
    def execute(self, requests):
        return [None] * len(requests)

    def finalize(self):
        open({note!r}, "w").write("ended")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in_thread")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    models = folder / "models"
    acts = write_python_model(models, "acts", ACTS, THREAD)
    (acts / "1" / "numbers_of_mine.py").write_text("OFFSET = 100\n")
    for name, offset in (("first", 1), ("second", 2)):
        added = write_python_model(models, name, ACTS.replace('"acts" and', f'"{name}" and'), THREAD)
        (added / "1" / "numbers_of_mine.py").write_text(f"OFFSET = {offset}\n")
    write_python_model(models, "doubles", DOUBLES, f"{THREAD} dynamic_batching {{ }}", 2)
    write_python_model(models, "waits", WAITS, THREAD)
    write_python_model(models, "strings", STRINGS, THREAD, tensors=TENSORS.replace("TYPE_FP32", "TYPE_STRING"))
    write_python_model(models, "ends", NOTES_ITS_END.format(note=str(folder / "note")), THREAD)
    steps = [step("doubles", {"X": "IN"}, {"Y": "t"}), step("doubles", {"X": "t"}, {"Y": "OUT"})]
    write_ensemble(models, "twice", *steps, inputs={"IN": "TYPE_FP32 -1"}, outputs={"OUT": "TYPE_FP32 -1"})
    decoupled = "model_transaction_policy { decoupled: true }"
    write_python_model(models, "decoupled", DOUBLES, f"{THREAD} {decoupled}")
    write_python_model(models, "sequences", DOUBLES, f"{THREAD} sequence_batching {{ }}")
    write_python_model(models, "confined", DOUBLES, f"{THREAD} {parameter('python', '3.8')}")
    write_python_model(models, "limited", DOUBLES, f"{THREAD} {parameter('memory-limit-mb', '100')}")
    write_python_model(models, "broken", "import no_such_module", THREAD)
    options = ("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
    with serving(folder / "log", "--model-repository", models, *options) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    made = Client(server)
    yield made
    made.grpc.close()


def said(client: Client, *values: float) -> str:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("acts", *values)
    return str(caught.value)


def test_no_process_is_started(client: Client) -> None:
    assert client.infer("doubles", 3.0, 4.0).tolist() == [[6.0, 8.0]]
    assert not [child for child in client.children() if "worker" in " ".join(child.cmdline())]


def test_requests_of_many_callers_get_their_own_responses(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: float(client.infer("doubles", float(n)).flat[0]), range(100)))
    assert found == [2.0 * n for n in range(100)]
    statistics = client.server.statistics("doubles")
    assert statistics["inference_stats"]["success"]["count"] >= 100
    assert statistics["inference_stats"]["fail"]["count"] == 0


def test_an_ensemble_of_such_models(client: Client) -> None:
    body = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    assert client.server.post("/v2/models/twice/infer", body).json()["outputs"][0]["data"] == [4.0, 8.0]


def test_a_coroutine_runs_to_its_end(client: Client) -> None:
    assert client.infer("waits", 7.0).tolist() == [[7.0]]


@pytest.mark.parametrize("count", [2, 2000])
def test_strings_are_bytes_again(client: Client, count: int) -> None:
    body = {"inputs": [{"name": "X", "datatype": "BYTES", "shape": [1, count], "data": ["é"] * count}]}
    assert client.server.post("/v2/models/strings/infer", body).json()["outputs"][0]["data"] == ["é!"] * count


def test_each_model_has_its_own_neighbours(client: Client) -> None:
    found = [float(client.infer(name, 0.0).flat[0]) for name in ("acts", "first", "second", "acts")]
    assert found == [100.0, 1.0, 2.0, 100.0]


def test_what_was_returned_does_not_change(client: Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: float(client.infer("acts", float(n)).flat[0]), range(20, 60)))
    assert found == [100.0 + n for n in range(20, 60)]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        (1, "Failed to process the request(s) for model 'acts_0_0', message: ValueError: no such number"),
        (3, "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'."),
        (4, "ValueError: output array is read-only"),
        (5, "calls of other models: not in a model with execution=thread"),
        (6, "response senders: not in a model with execution=thread"),
        (7, "'metric_family': not in a model with execution=thread"),
        (8, "SystemExit: enough"),
    ],
)
def test_errors_are_those_of_a_process_or_name_what_needs_one(client: Client, what: int, text: str) -> None:
    assert text in said(client, float(what))
    assert client.infer("acts", 10.0).tolist() == [[110.0]]


def test_places_in_errors_are_those_of_the_model(client: Client) -> None:
    places = [line for line in said(client, 1.0).splitlines() if line.startswith("  ")]
    assert places[0].endswith(": answer")
    assert all("acts/1/model.py" in place for place in places)


def test_an_error_that_a_model_chooses_has_its_code(client: Client) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.infer("acts", 2.0)
    assert (caught.value.status(), caught.value.message()) == ("StatusCode.NOT_FOUND", "not today")


def test_a_model_learns_of_its_request(client: Client) -> None:
    client.infer("acts", 9.0, request_id="a7", parameters={"k": 1})
    (line,) = [line for line in client.server.log.splitlines() if "said [" in line]
    for part in ("'a7'", "k", "['Y'], '1'", f"in {client.server.process.pid}"):
        assert part in line
    assert client.server.log.count("acts_0_0: returned output 'Z', which its configuration does not have") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("decoupled", "it is decoupled, which needs a response sender"),
        ("sequences", "it has sequence_batching"),
        ("confined", "parameter 'python' asks for an environment of its own"),
        ("limited", "parameter 'memory-limit-mb' limits a process"),
        ("broken", "No module named 'no_such_module'"),
    ],
)
def test_what_needs_a_process_is_refused(server: RunningServer, name: str, text: str) -> None:
    (row,) = [row for row in server.index() if row["name"] == name]
    assert row["state"] == "UNAVAILABLE"
    assert text in row["reason"]


def test_a_reload_runs_the_new_code_and_ends_the_old(client: Client, folder: Path) -> None:
    file = folder / "models" / "first" / "1" / "numbers_of_mine.py"
    file.write_text("OFFSET = 30\n")
    config = json.dumps(client.server.get("/v2/models/first/config").json())
    body = {"parameters": {"config": config}}
    assert client.server.post("/v2/repository/models/first/load", body).status == 200
    assert client.infer("first", 0.0).tolist() == [[30.0]]
    assert client.server.post("/v2/repository/models/ends/unload", {}).status == 200
    wait_until(lambda: (folder / "note").exists(), 10, "the model has ended")


def test_arrays_may_be_large(client: Client) -> None:
    x = np.arange(300_000, dtype=np.float32).reshape(1, -1)
    assert np.array_equal(client.infer_array("doubles", x), 2 * x)
