"""Ensembles and their members: loaded together, gone together, exchanged and killed under load."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, serving, wait_until
from server.test_ensembles import ADDS, write_python
from support.python_models import HEAD
from support.served_ensembles import I_TO_O, chain, step, write_ensemble, write_identity
from support.served_models import identity, tensor

ROW = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Members "same" and "other", and ensembles of them."""
    found = tmp_path / "models"
    write_identity(found, "same")
    write_identity(found, "other")
    write_ensemble(found, "pair", *chain("same", "other"))
    write_ensemble(found, "outer", step("pair", {"IN": "IN"}, {"OUT": "OUT"}))
    return found


@pytest.fixture
def server(tmp_path: Path, repository: Path) -> Iterator[RunningServer]:
    """A server in explicit mode that has loaded nothing."""
    options = ("--model-repository", repository, "--model-control-mode", "explicit", "--allow-client-shm=true")
    with serving(tmp_path / "log", *options) as found:
        yield found


def load(server: RunningServer, name: str, **config: Any) -> Any:
    return server.post(f"/v2/repository/models/{name}/load", {"parameters": config} if config else {})


def unload(server: RunningServer, name: str, dependents: bool = False) -> None:
    body = {"parameters": {"unload_dependents": dependents}}
    assert server.post(f"/v2/repository/models/{name}/unload", body).status == 200


def states(server: RunningServer) -> dict[str, tuple[str, str]]:
    rows = server.index()
    return {row["name"]: (row.get("state", ""), row.get("reason", "")) for row in rows}


def is_answered(server: RunningServer, name: str = "pair") -> bool:
    return server.infer(name, ROW).status == 200


# Loading and unloading


@pytest.mark.slow
def test_members_are_loaded_with_their_ensemble(server: RunningServer) -> None:
    assert load(server, "outer").status == 200
    assert {name for name, (state, _) in states(server).items() if state == "READY"} == {
        "outer",
        "pair",
        "same",
        "other",
    }
    assert is_answered(server, "outer")


def test_an_ensemble_is_loaded_again_without_a_change(server: RunningServer, repository: Path) -> None:
    for _ in range(2):
        assert load(server, "pair").status == 200
        assert is_answered(server)
        os.utime(repository / "pair" / "config.pbtxt")
    config = (repository / "pair" / "config.pbtxt").read_text()
    (repository / "pair" / "config.pbtxt").write_text(f"{config}\n# written again\n")
    assert load(server, "pair").status == 200
    assert is_answered(server)


def write_labels(repository: Path, name: str, *labels: str) -> None:
    """Name the classes of a model's one output, anew if it has labels."""
    config = repository / name / "config.pbtxt"
    output = tensor("OUTPUT0" if name == "same" else "OUT", "TYPE_INT32", "-1")
    config.write_text(config.read_text().replace(output, output[:-1] + 'label_filename: "labels.txt" }'))
    (repository / name / "labels.txt").write_text("\n".join(labels))


def best(server: RunningServer, name: str) -> list[str]:
    """The two best classes that a model finds in the row 5, 7, 6."""
    given = {"name": "IN", "datatype": "INT32", "shape": [1, 3], "data": [5, 7, 6]}
    wanted = {"name": "OUT", "parameters": {"classification": 2}}
    found: list[str] = server.infer(name, {"inputs": [given], "outputs": [wanted]}).json()["outputs"][0]["data"]
    return found


@pytest.mark.slow
def test_outputs_have_the_labels_of_the_members_that_write_them(server: RunningServer, repository: Path) -> None:
    write_labels(repository, "same", "ant", "bee", "cat")
    write_ensemble(repository, "pair", *chain("other", "same"))
    assert load(server, "outer").status == 200
    assert best(server, "pair") == best(server, "outer") == ["7:1:bee", "6:2:cat"]
    # What is remembered of such requests does not outlive the labels.
    write_labels(repository, "same", "auk", "bat")
    assert load(server, "same").status == 200
    assert best(server, "pair") == best(server, "outer") == ["7:1:bat", "6:2"]


@pytest.mark.slow
def test_labels_of_an_ensemble_come_before_those_of_its_members(server: RunningServer, repository: Path) -> None:
    write_labels(repository, "same", "ant", "bee", "cat")
    write_ensemble(repository, "pair", *chain("other", "same"))
    write_labels(repository, "pair", "one", "two")
    assert load(server, "outer").status == 200
    assert best(server, "pair") == best(server, "outer") == ["7:1:two", "6:2"]


@pytest.mark.slow
def test_an_ensemble_goes_and_comes_with_a_member(server: RunningServer) -> None:
    load(server, "outer")
    unload(server, "other")
    answer = server.infer("outer", ROW)
    assert answer.status == 404
    assert answer.error == "Request for unknown model: 'outer' has no available versions"
    assert states(server)["pair"] == (
        "UNAVAILABLE",
        "unloaded: ensemble 'pair' depends on 'other' which has no loaded version.",
    )
    # Somebody wanted it so: the server is as ready as before.
    assert server.get("/v2/health/ready").status == 200
    assert server.get("/v2/models/pair/ready").status == 400
    assert load(server, "other").status == 200
    assert is_answered(server, "pair") and is_answered(server, "outer")


def test_an_ensemble_that_somebody_unloaded_stays_away(server: RunningServer) -> None:
    load(server, "pair")
    unload(server, "other")
    unload(server, "pair")
    load(server, "other")
    assert server.infer("pair", ROW).status == 404


def test_dependents_are_unloaded_where_nobody_else_needs_them(server: RunningServer) -> None:
    load(server, "same")
    load(server, "outer")
    unload(server, "outer", dependents=True)
    wait_until(lambda: states(server)["other"][0] == "UNAVAILABLE", 10, "it is gone")
    found = states(server)
    # This one was asked for by itself.
    assert found["same"][0] == "READY"
    assert [found[name][0] for name in ("pair", "outer")] == ["UNAVAILABLE"] * 2


def test_without_dependents_members_stay(server: RunningServer) -> None:
    load(server, "pair")
    unload(server, "pair")
    assert states(server)["same"][0] == "READY"


REFUSED = {
    "unknown": (chain("same", "nobody"), "ensemble bad contains models that are not available or ambiguous: nobody\n"),
    "itself": (chain("bad"), "circular dependency between ensembles: bad -> ... -> bad -> bad\n"),
    "version": (
        [step("same", *I_TO_O, version=3)],
        "ensemble 'bad' depends on 'same' whose required version 3 is not loaded.\n",
    ),
    "no such input": (
        [step("same", {"X": "IN"}, {"OUTPUT0": "OUT"})],
        "in ensemble bad, ensemble tensor IN is mapping to non-existing input X in model same\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_an_ensemble_that_cannot_run_is_refused(server: RunningServer, repository: Path, name: str) -> None:
    steps, text = REFUSED[name]
    write_ensemble(repository, "bad", *steps)
    answer = load(server, "bad")
    assert answer.status == 400
    assert answer.error == f"load failed for model 'bad': {text}"
    assert states(server)["bad"] == ("UNAVAILABLE", text.rstrip())
    assert server.infer("bad", ROW).status == 404


@pytest.mark.slow
def test_ensembles_of_each_other_are_refused(server: RunningServer, repository: Path) -> None:
    write_ensemble(repository, "one", step("two", {"IN": "IN"}, {"OUT": "OUT"}))
    write_ensemble(repository, "two", step("one", {"IN": "IN"}, {"OUT": "OUT"}))
    answer = load(server, "one")
    assert answer.error == (
        "load failed for model 'one': circular dependency between ensembles: one -> ... -> two -> one\n"
    )


@pytest.mark.slow
def test_ensembles_inside_each_other_are_bounded(server: RunningServer, repository: Path) -> None:
    write_ensemble(repository, "n1", *chain("same"))
    for number in range(2, 35):
        write_ensemble(repository, f"n{number}", step(f"n{number - 1}", {"IN": "IN"}, {"OUT": "OUT"}))
    assert load(server, "n32").status == 200
    assert is_answered(server, "n32")
    answer = load(server, "n33")
    assert answer.status == 400
    assert "ensemble n33 has 33 ensembles inside each other, itself included; at most 32 are possible" in answer.error
    # One that gets deeper takes along what would be too deep with it.
    write_ensemble(repository, "n1", step("pair", {"IN": "IN"}, {"OUT": "OUT"}))
    assert load(server, "n1").status == 200
    wait_until(lambda: "ensemble n32 has 33 ensembles inside each other" in states(server)["n32"][1], 10, "n32 goes")
    assert is_answered(server, "n31") and not is_answered(server, "n32")


def test_ensembles_of_each_other_do_not_hold_up_the_start(tmp_path: Path, repository: Path) -> None:
    write_ensemble(repository, "one", step("two", {"IN": "IN"}, {"OUT": "OUT"}))
    write_ensemble(repository, "two", step("one", {"IN": "IN"}, {"OUT": "OUT"}))
    with serving(tmp_path / "log", "--model-repository", repository, "--exit-on-error=false") as server:
        assert is_answered(server, "outer")
        assert server.get("/v2/health/ready").status == 400
        assert "circular dependency" in states(server)["one"][1]


@pytest.mark.slow
def test_a_member_that_cannot_be_loaded_says_why(server: RunningServer, repository: Path) -> None:
    write_ensemble(repository, "bad", *chain("same", "broken"))
    write_python(repository, "broken", "raise ValueError('no luck')", tensor("INPUT0", "TYPE_INT32", "-1"))
    answer = load(server, "bad")
    assert answer.status == 400
    assert (
        "ensemble 'bad' depends on 'broken' which has no loaded version. Model 'broken' loading failed with error: "
        in (answer.error)
    )
    assert "no luck" in answer.error


def identity_as_json(data_type: str = "TYPE_INT32", max_batch_size: int = 8) -> str:
    return json.dumps(
        {
            "backend": "identity",
            "max_batch_size": max_batch_size,
            "input": [{"name": "INPUT0", "data_type": data_type, "dims": [-1]}],
            "output": [{"name": "OUTPUT0", "data_type": data_type, "dims": [-1]}],
        }
    )


@pytest.mark.slow
def test_a_member_that_fits_no_more_takes_its_ensemble_along(server: RunningServer) -> None:
    load(server, "pair")
    assert load(server, "other", config=identity_as_json("TYPE_FP32")).status == 200
    assert server.infer("pair", ROW).status == 404
    assert "inconsistent data type" in states(server)["pair"][1]
    assert server.get("/v2/health/ready").status == 400


@pytest.mark.slow
def test_a_load_without_a_change_leaves_an_ensemble_as_its_members_left_it(
    server: RunningServer, repository: Path
) -> None:
    load(server, "outer")
    # This one fits, so the ensemble goes on as it is, with its statistics.
    assert load(server, "other", config=identity_as_json(max_batch_size=16)).status == 200
    assert is_answered(server)
    assert load(server, "pair").status == 200
    assert server.statistics("pair")["inference_stats"]["success"]["count"] == 1
    assert load(server, "other", config=identity_as_json("TYPE_FP32")).status == 200
    wait_until(lambda: all(states(server)[name][0] == "UNAVAILABLE" for name in ("pair", "outer")), 10, "both are gone")
    left = states(server)
    assert "inconsistent data type" in left["pair"][1]
    for _ in range(2):
        assert load(server, "pair").status == 200
        assert states(server) == left
        assert not is_answered(server)
    # A change of the ensemble is tried, and so is a load after an unload.
    config = repository / "pair" / "config.pbtxt"
    config.write_text(f"{config.read_text()}\n# written again\n")
    for _ in range(2):
        answer = load(server, "pair")
        assert answer.status == 400 and "inconsistent data type" in answer.error
    assert load(server, "other", config=identity_as_json()).status == 200
    assert is_answered(server, "pair") and is_answered(server, "outer")


@pytest.mark.slow
def test_a_member_that_serves_is_not_loaded_with_its_ensemble(server: RunningServer, repository: Path) -> None:
    load(server, "pair")
    (repository / "other" / "config.pbtxt").write_text(identity(max_batch_size=16))
    for name, batch in (("pair", 8), ("other", 16)):
        assert load(server, name).status == 200
        assert server.get("/v2/models/other/config").json()["max_batch_size"] == batch
        assert is_answered(server)


@pytest.mark.slow
def test_a_changed_repository_is_followed(tmp_path: Path, repository: Path) -> None:
    options = ("--model-control-mode", "poll", "--repository-poll-secs", "1", "--exit-on-error=false")
    write_ensemble(repository, "early", *chain("same", "late"))
    with serving(tmp_path / "log", "--model-repository", repository, *options) as server:
        assert not is_answered(server, "early")
        write_identity(repository, "late")
        wait_until(lambda: is_answered(server, "early"), 20, "it came with its member")
        file = repository / "late" / "config.pbtxt"
        file.write_text(identity("TYPE_FP32", max_batch_size=8))
        wait_until(lambda: not is_answered(server, "early"), 20, "it went with its member")
        file.write_text(identity(max_batch_size=8))
        wait_until(lambda: is_answered(server, "early"), 20, "it came back")


@pytest.mark.slow
def test_evicted_members_are_loaded_for_a_request(tmp_path: Path, repository: Path) -> None:
    options = ("--load-on-demand-secs", "20", "--model-idle-unload-secs", "1", "--model-control-mode", "explicit")
    with serving(tmp_path / "log", "--model-repository", repository, *options) as server:
        assert is_answered(server, "outer")
        wait_until(lambda: states(server)["same"][0] == "UNAVAILABLE", 20, "it was idle for long enough")
        assert is_answered(server, "outer")
        given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
        given.set_data_from_numpy(np.array([[5]], np.int32))
        wait_until(lambda: states(server)["same"][0] == "UNAVAILABLE", 20, "again")
        with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
            assert client.infer("outer", [given]).as_numpy("OUT").tolist() == [[5]]


# Under load


def _call_until(stop: threading.Event, library: Any, url: str, model: str) -> int:
    """Ask until ``stop`` is set; raises what fails."""
    x = np.array([[7]], np.int32)
    given = library.InferInput("IN", x.shape, "INT32")
    given.set_data_from_numpy(x)
    count = 0
    with library.InferenceServerClient(url) as client:
        while not stop.is_set():
            assert client.infer(model, [given]).as_numpy("OUT").tolist() == [[7]]
            count += 1
    return count


@pytest.mark.slow
def test_members_are_exchanged_under_load_and_no_request_fails(server: RunningServer, repository: Path) -> None:
    write_identity(repository, "slow", delay_ms=20)
    write_ensemble(
        repository, "deep", step("pair", {"IN": "IN"}, {"OUT": "t"}), chain("slow")[0].replace('"IN"', '"t"')
    )
    load(server, "deep")
    stop = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        callers = [
            pool.submit(_call_until, stop, library, url, "deep")
            for library, url in ((tritonclient.http, server.url), (tritonclient.grpc, server.grpc_url)) * 2
        ]
        for turn in range(12):
            name = ("same", "other", "slow", "pair", "deep")[turn % 5]
            file = repository / name / "config.pbtxt"
            more = f'parameters {{ key: "turn{turn}" value {{ string_value: "" }} }}'
            file.write_text(f"{file.read_text()}\n{more}\n")
            os.utime(file, ns=(0, 1_000_000_000 * (turn + 1)))
            assert load(server, name).status == 200
        stop.set()
        counts = [caller.result() for caller in callers]
    assert all(count > 0 for count in counts)
    wait_until(
        lambda: all(state != "UNLOADING" for state, _ in states(server).values()), 10, "the earlier copies are gone"
    )


def _children(server: RunningServer) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children()


WAITS = """
class TritonPythonModel:
    def execute(self, requests):
        time.sleep(20)
"""


@pytest.mark.slow
def test_a_member_that_dies_fails_its_requests_and_comes_back(server: RunningServer, repository: Path) -> None:
    write_python(
        repository,
        "adds",
        ADDS.replace("answers = []", "answers = []; time.sleep(0.5)"),
        tensor("INPUT0", "TYPE_INT32", "-1"),
    )
    write_ensemble(repository, "fragile", *chain("same", "adds", "other"))
    load(server, "fragile")
    assert is_answered(server, "fragile")
    with ThreadPoolExecutor(1) as pool:
        before = server.statistics("same")["inference_count"]
        answer = pool.submit(server.infer, "fragile", ROW)
        wait_until(lambda: server.statistics("same")["inference_count"] > before, 10, "the first step has run")
        (child,) = _children(server)
        os.kill(child.pid, signal.SIGKILL)
        found = answer.result()
    assert found.status == 503
    assert "in ensemble 'fragile', step 1 (model 'adds'): " in found.error
    wait_until(lambda: is_answered(server, "fragile"), 20, "it works again")
    assert server.get("/v2/models/fragile/ready").status == 200


@pytest.mark.slow
def test_a_caller_that_goes_takes_the_steps_along(server: RunningServer, repository: Path) -> None:
    write_identity(repository, "slow", delay_ms=800)
    write_ensemble(repository, "late", *chain("same", "slow", "other"))
    load(server, "late")
    ran = server.statistics("other")["inference_count"]
    given = tritonclient.grpc.InferInput("IN", [1, 1], "INT32")
    given.set_data_from_numpy(np.array([[1]], np.int32))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        # One runs, one waits behind it.
        calls = [client.async_infer("late", [given], lambda result, error: None) for _ in range(2)]
        server.wait_pending("slow", 1)
        for call in calls:
            call.cancel()
        server.wait_pending("slow", 0)
        stats = lambda name: server.statistics(name)["inference_stats"]  # noqa: E731
        wait_until(lambda: stats("late")["fail"]["count"] == 2, 10, "both are answered")
        assert stats("slow")["fail"]["count"] == 1
        wait_until(lambda: stats("slow")["success"]["count"] == 1, 10, "the one that ran has run")
        with pytest.raises(Exception, match="Deadline Exceeded"):
            client.infer("late", [given], client_timeout=0.2)
        wait_until(lambda: stats("late")["fail"]["count"] == 3, 10, "the deadline counts, too")
    assert server.statistics("other")["inference_count"] == ran
    assert is_answered(server, "late")
    assert is_answered(server, "pair") or load(server, "pair").status == 200


@pytest.mark.slow
def test_ten_thousand_requests_leave_nothing_behind(server: RunningServer) -> None:
    load(server, "outer")
    body = json.dumps(ROW).encode()
    head = b"POST /v2/models/outer/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)

    def ask(count: int) -> None:
        # In portions: a server reads no more of a connection than it has answered.
        with server.connect() as peer:
            for _ in range(count // 50):
                peer.sendall((head + body) * 50)
                received = b""
                while received.count(b"HTTP/1.1 200 OK") < 50 or not received.endswith(b"}"):
                    received += peer.recv(1 << 20)

    ask(2000)
    before = server.memory_bytes()
    ask(10_000)
    assert server.statistics("outer")["inference_count"] == 12_000
    assert server.memory_bytes() - before < 4 << 20


# Requests in shared memory, and traces


@pytest.mark.slow
def test_tensors_in_shared_memory(server: RunningServer) -> None:
    import tritonclient.utils.shared_memory as shm

    load(server, "pair")
    x = np.arange(100_000, dtype=np.int32).reshape(8, -1)
    handle = shm.create_shared_memory_region("both", f"/naiad_ensemble_{os.getpid()}", 2 * x.nbytes)
    try:
        shm.set_shared_memory_region(handle, [x])
        with tritonclient.http.InferenceServerClient(server.url) as client:
            client.register_system_shared_memory("both", f"/naiad_ensemble_{os.getpid()}", 2 * x.nbytes)
            given = tritonclient.http.InferInput("IN", x.shape, "INT32")
            given.set_shared_memory("both", x.nbytes)
            made = tritonclient.http.InferRequestedOutput("OUT")
            made.set_shared_memory("both", x.nbytes, x.nbytes)
            client.infer("pair", [given], outputs=[made])
            assert np.array_equal(shm.get_contents_as_numpy(handle, np.int32, x.shape, x.nbytes), x)
            client.unregister_system_shared_memory("both")
    finally:
        shm.destroy_shared_memory_region(handle)


@pytest.mark.slow
def test_steps_are_traced_as_children(tmp_path: Path, repository: Path) -> None:
    file = tmp_path / "trace.json"
    options = (
        "--trace-config",
        f"triton,file={file}",
        "--trace-config",
        "level=TIMESTAMPS",
        "--trace-config",
        "rate=1",
    )
    with serving(tmp_path / "log", "--model-repository", repository, *options) as server:
        assert server.infer("outer", {**ROW, "id": "seven"}).status == 200
    found = json.loads(file.read_text())
    heads = {item["id"]: item for item in found if "model_name" in item}
    parents = {item["model_name"]: heads.get(item.get("parent_id"), {}).get("model_name") for item in heads.values()}
    assert parents == {"outer": None, "pair": "outer", "same": "pair", "other": "pair"}
    assert {item["request_id"] for item in heads.values()} == {"seven"}
    in_order = ["id", "model_name", "model_version", "request_id", "parent_id"]
    assert [list(item) for item in heads.values() if "parent_id" in item] == [in_order] * 3
    times = {
        heads[item["id"]]["model_name"]: [t["name"] for t in item["timestamps"]]
        for item in found
        if "timestamps" in item
    }
    assert times["outer"][0] == "HTTP_RECV_START"
    assert {"REQUEST_START", "QUEUE_START", "REQUEST_END"} <= set(times["same"])


@pytest.mark.slow
@pytest.mark.parametrize("routes", [False, True], ids=["plain", "with routes"])
def test_a_kept_answer_goes_with_a_change_of_any_model_inside(tmp_path: Path, routes: bool) -> None:
    """Also of one inside of a member, which stays itself."""
    models = tmp_path / "models"
    write_python(models, "adds", ADDS, tensor("INPUT0", "TYPE_INT32", "-1"))
    write_ensemble(models, "inner", *chain("adds"))
    write_ensemble(models, "middle", step("inner", {"IN": "IN"}, {"OUT": "OUT"}))
    kept = "response_cache { enable: true }"
    write_ensemble(models, "outer", step("middle", {"IN": "IN"}, {"OUT": "OUT"}), extra=kept)
    options = ("--cache-config", "local,size=100000", "--model-control-mode", "explicit", "--load-model", "outer")
    with serving(tmp_path / "log", "--model-repository", models, *options) as server:
        if routes:
            for name in ("adds", "inner"):
                split = {"split": {"1": 1}}
                assert server.post(f"/v2/repository/models/{name}/load", {}).status == 200
                assert server.post(f"/v2/models/{name}/routes", split).status == 200

        def answer() -> int:
            return int(server.infer("outer", ROW).json()["outputs"][0]["data"][0])

        assert [answer(), answer()] == [2, 2]
        assert server.statistics("outer")["inference_stats"]["cache_hit"]["count"] == 1
        source = models / "adds" / "1" / "model.py"
        for more in (2, 3):
            source.write_text((HEAD + ADDS).replace("x + 1", f"x + {more}"))
            assert load(server, "adds").status == 200
            assert [answer(), answer()] == [1 + more] * 2
