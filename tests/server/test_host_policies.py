"""Host policies on a real server: which cores the threads of models and of the event loop run on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from naiad.processes.affinity import memory_nodes
from naiad.testing import run_to_end, wait_until, write_model
from support import onnx_models
from support.config_texts import parameters
from support.core_policies import ALL, CORES, POLICIES, WHY_NOT, cores_of_model_threads, cores_of_threads, group_on
from support.python_models import DOUBLES, Client, client_of, write_python_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(CORES) < 2, reason=WHY_NOT),
]

IDENTITY = 'backend: "identity" input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } '
IDENTITY += 'output { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }\n'
SETTLED_S = 20.0


def write_identity(repository: Path, name: str, more: str = "") -> None:
    (write_model(repository, name) / "config.pbtxt").write_text(IDENTITY + more)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server's models."""
    return tmp_path_factory.mktemp("policies") / "models"


@pytest.fixture(scope="module")
def client(repository: Path) -> Iterator[Client]:
    """A server whose event loop has the first core, with models on the second one and on no particular one."""
    for name in ("pinned", "plain"):
        write_python_model(repository, f"python_{name}", DOUBLES)
        write_identity(repository, f"thread_{name}")
    for kind in ("python", "thread"):
        config = repository / f"{kind}_pinned" / "config.pbtxt"
        text = config.read_text().replace("instance_group [ { count: 1 kind: KIND_CPU } ]", "")
        config.write_text(text + group_on(CORES[1]))
    write_identity(repository, "far", 'instance_group [ { kind: KIND_CPU host_policy: "far" } ]')
    write_identity(repository, "unset", 'instance_group [ { kind: KIND_CPU host_policy: "unset" } ]')
    options = (
        *POLICIES,
        f"--host-policy=frontend,cpu-cores={CORES[0]}",
        *[f"--host-policy=core_{CORES[1]},numa-node={min(memory_nodes())}" for _ in memory_nodes()],
        "--host-policy=far,cpu-cores=700,701",
        # For a machine with a GPU.
        "--host-policy=gpu_0,cpu-cores=600",
        "--host-policy=gpu_0,numa-node=7",
        "--model-control-mode=explicit",
    )
    with client_of(repository, repository.parent / "log", *options) as found:
        yield found


def test_the_event_loop_has_cores_of_its_own(client: Client) -> None:
    # The main thread, which runs the loop, has the number of the process.
    process = client.server.process.pid
    assert cores_of_threads(process)[process] == str(CORES[0])
    assert f"the event loop runs on core {CORES[0]} (host policy 'frontend')" in client.server.log


def test_a_thread_is_on_the_cores_of_its_policy(client: Client) -> None:
    process = client.server.process.pid
    before = cores_of_threads(process)
    client.load("thread_pinned")
    assert client.infer_array("thread_pinned", np.array([1, 2], np.float32)).tolist() == [1, 2]
    wait_until(lambda: cores_of_model_threads(process, before) == [str(CORES[1])], SETTLED_S, "one thread stays")
    group = client.grpc.get_model_config("thread_pinned").config.instance_group[0]
    line = f"model 'thread_pinned': the instances of group '{group.name}' run on core {CORES[1]}"
    assert line in client.server.log and f"(host policy 'core_{CORES[1]}')" in client.server.log


def test_a_worker_is_on_the_cores_of_its_policy_or_on_all(client: Client) -> None:
    for model, cores in (("python_pinned", str(CORES[1])), ("python_plain", ALL)):
        known = {child.pid for child in client.children()}
        client.load(model)
        assert client.infer(model, 1, 2).tolist() == [[2, 4]]
        (worker,) = [child for child in client.children() if child.pid not in known]
        assert set(cores_of_threads(worker.pid).values()) == {cores}
        if memory_nodes() and "memory cannot be bound to a NUMA node" not in client.server.log:
            is_bound = f" bind:{min(memory_nodes())} " in Path(f"/proc/{worker.pid}/numa_maps").read_text()
            assert is_bound == (model == "python_pinned")
        # Another one in its place is there, too.
        worker.kill()

        known.add(worker.pid)

        def again(known: set[int] = known) -> list[int]:
            return [child.pid for child in client.children() if child.pid not in known]

        wait_until(again, SETTLED_S, f"{model} runs again")
        (pid,) = again()
        assert set(cores_of_threads(pid).values()) == {cores}


@pytest.mark.parametrize("way", ["thread", "process"])
def test_groups_of_a_model_each_have_pools_on_their_own_cores(client: Client, repository: Path, way: str) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    folder = repository / f"onnx_{way}"
    onnx_models.double(folder / "1" / "model.onnx")
    # The last core first: the session that completes the configuration is there.
    groups = "".join(group_on(core) for core in reversed(CORES))
    text = 'backend: "onnxruntime"\n' + groups + parameters(execution=way, intra_op_thread_count=3)
    (folder / "config.pbtxt").write_text(text)
    process = client.server.process.pid
    before, known = cores_of_threads(process), {child.pid for child in client.children()}
    client.load(f"onnx_{way}")
    if way == "thread":
        # Each instance is a thread, whose pool has two more.
        expected = sorted(3 * [str(core) for core in CORES])
        wait_until(lambda: sorted(cores_of_model_threads(process, before)) == expected, SETTLED_S, "three on each core")
        return
    workers = [set(cores_of_threads(child.pid).values()) for child in client.children() if child.pid not in known]
    assert sorted(map(sorted, workers)) == [[str(core)] for core in CORES]


def test_cores_that_the_server_lacks_are_named_by_the_load(client: Client) -> None:
    answer = client.server.post("/v2/repository/models/far/load", {})
    assert answer.status == 400
    text = answer.body.decode()
    assert "has the host policy 'far' with cores 700-701, and the server may use" in text
    assert "correct --host-policy=far,cpu-cores=..." in text


def test_a_policy_that_nothing_sets_is_a_warning(client: Client) -> None:
    client.load("unset")
    assert "instance group 'unset_0' has the host policy 'unset', which no --host-policy sets" in client.server.log


def test_other_groups_of_a_serving_model_go_where_their_policy_says(client: Client) -> None:
    client.load("thread_plain")
    process = client.server.process.pid
    before = cores_of_threads(process)
    groups = [{"count": 1, "kind": "KIND_CPU", "host_policy": f"core_{core}"} for core in CORES]
    config = {"name": "thread_plain", "backend": "identity", "instance_group": groups}
    config["input"] = [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}]
    config["output"] = [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}]
    answer = client.server.post(
        "/v2/repository/models/thread_plain/load", {"parameters": {"config": json.dumps(config)}}
    )
    assert answer.status == 200, answer.body
    expected = sorted(map(str, CORES))
    wait_until(lambda: sorted(cores_of_model_threads(process, before)) == expected, SETTLED_S, "a thread on each core")


def test_an_event_loop_without_its_cores_does_not_start(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "m")
    code, log = run_to_end(
        tmp_path / "log", "--model-repository", tmp_path / "models", "--host-policy=frontend,cpu-cores=700"
    )
    assert code == 1
    assert "the event loop has the host policy 'frontend' with core 700, and the server may use" in log
