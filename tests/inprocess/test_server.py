"""A server in the process of a program: requests without a network, its life, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import naiad
from naiad import api
from naiad.errors import InvalidArgumentError, ModelLoadError, NotFoundError, OptionError, UnavailableError
from naiad.inprocess.options import read_options
from naiad.testing import wait_until, write_model

pytest_plugins = ["naiad.testing.fixtures"]

CONFIG = """
backend: "identity"
input [ {{ name: "x" data_type: {type} dims: [ -1 ] }} ]
output [ {{ name: "y" data_type: {type} dims: [ -1 ] }} ]
"""
X = np.arange(16, dtype=np.float32)


def torch_tensor() -> object:
    return pytest.importorskip("torch").arange(16.0)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "echo", CONFIG.format(type="TYPE_FP32"))
    write_model(folder, "text", CONFIG.format(type="TYPE_STRING"))
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[api.Server]:
    with api.Server(model_repository=str(repository), model_control_mode=api.ModelControlMode.EXPLICIT,
                    startup_models=["echo", "text"]) as server:  # fmt: skip
        yield server


# ---- requests


def test_infer(server: api.Server) -> None:
    (response,) = server.model("echo").infer(inputs={"x": X}, request_id="7")
    assert response.final
    assert response.request_id == "7"
    output = response.outputs["y"]
    assert (output.data_type.wire, output.shape) == ("FP32", (16,))
    assert np.from_dlpack(output).tolist() == np.asarray(output).tolist() == X.tolist()


@pytest.mark.parametrize("value", [[0, 1, 2], (0, 1, 2), X[:6:2].astype(">f4") / 2, X[:6:2] / 2])
def test_lists_and_arrays_of_any_layout_are_inputs(server: api.Server, value: object) -> None:
    (response,) = server.model("echo").infer(inputs={"x": value})
    assert response.outputs["y"].numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", [2, 3000])
def test_strings(server: api.Server, count: int) -> None:
    given = [f"ä{number}" for number in range(count)]
    for value in (given, np.array(given), np.array([g.encode() for g in given], object)):
        (response,) = server.model("text").infer(inputs={"x": value})
        assert response.outputs["y"].to_string_array().tolist() == given
        assert response.outputs["y"].to_bytes_array().tolist() == [g.encode() for g in given]


def test_the_arrays_of_the_caller_stay_writeable_and_unchanged(server: api.Server) -> None:
    given = X.copy()
    (response,) = server.model("echo").infer(inputs={"x": given})
    assert given.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        response.outputs["y"].numpy()[0] = 1


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"inputs": {"z": X}}, InvalidArgumentError, "unexpected inference input 'z'"),
        ({"inputs": {"x": X.astype(np.int32)}}, InvalidArgumentError, "data-type is 'INT32', but model"),
        ({"inputs": {"x": X.reshape(4, 4)}}, InvalidArgumentError, "unexpected shape"),
        ({"inputs": {"x": X.astype(np.complex64)}}, InvalidArgumentError, "input 'x' is an array of complex64"),
        ({"inputs": {"x": ["a"]}}, InvalidArgumentError, "input 'x': could not convert string to float"),
        ({"inputs": {"x": X}, "outputs": ["z"]}, InvalidArgumentError, "unexpected inference output 'z'"),
        ({"inputs": {"x": X}, "timeout": -1}, InvalidArgumentError, "timeout is -1, expected a whole number"),
        ({"inputs": {"x": X}, "output_memory_type": "gpu"}, InvalidArgumentError, "output_memory_type is 'gpu'"),
        ({"inputs": {"x": X}, "request_id": 7}, InvalidArgumentError, "request_id is 7, expected a text"),
        ({"inputs": {"x": X}, "correlation_id": 1.5}, InvalidArgumentError, "correlation_id is 1.5, expected a text"),
        ({"inputs": {"x": X}, "outputs": "y"}, InvalidArgumentError, "outputs is 'y', expected a list of names"),
        ({"inputs": {"x": X}, "parameters": {"a": {}}}, InvalidArgumentError, "the parameter 'a' is {}, expected a"),
        ({"inputs": {"x": X}, "parameters": {"a": None}}, InvalidArgumentError, "the parameter 'a' is None, expected"),
        ({"inputs": {"x": X}, "parameters": {1: "a"}}, InvalidArgumentError, "the parameter 1 is 'a', expected a text"),
        ({"inputs": {"x": X}, "parameters": {"a": 1 << 63}}, InvalidArgumentError, "expected a number of 64 bits"),
    ],
)
def test_wrong_requests(server: api.Server, arguments: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as found:
        list(server.model("echo").infer(**arguments))  # type: ignore[arg-type]
    assert text in str(found.value)


@pytest.mark.parametrize("value", [X, torch_tensor], ids=["numpy", "torch"])
def test_tensors_of_other_libraries_are_tensors(server: api.Server, value: object) -> None:
    tensor = api.Tensor.from_dlpack(value() if callable(value) else value)
    assert tensor.data_type is api.DataType.FP32
    assert tensor.to_host() is tensor
    (response,) = server.model("echo").infer(inputs={"x": tensor}, output_memory_type="cpu")
    assert response.outputs["y"].data_type == api.DataType.FP32
    assert response.outputs["y"].numpy().tolist() == X.tolist()


def test_strings_are_tensors(server: api.Server) -> None:
    for tensor in (
        api.Tensor.from_string_array(["a", "é"]),
        api.Tensor.from_bytes_array(np.array([b"a", "é"], object)),
    ):
        (response,) = server.model("text").infer(inputs={"x": tensor})
        assert response.outputs["y"].to_string_array().tolist() == ["a", "é"]
        assert tensor.data_type is api.DataType.BYTES


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: api.Tensor.from_string_array([1, 2]), "found an array of int64, expected elements of str or bytes"),
        (lambda: api.Tensor.from_bytes_array([None]), "an element is NoneType, expected str or bytes"),
        (lambda: api.Tensor.from_dlpack(7), "found int, expected a tensor on the CPU"),
        (lambda: api.Tensor.from_dlpack(X.astype(np.complex64)), "complex64, which is no datatype of the protocol"),
    ],
)
def test_what_is_no_tensor(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        make()


def test_unknown_models(server: api.Server) -> None:
    with pytest.raises(NotFoundError, match="unknown model: 'nothing'"):
        list(server.model("nothing").infer(inputs={"x": X}))
    assert not server.model("nothing").ready()
    (response,) = server.model("nothing").infer(inputs={"x": X}, raise_on_error=False)
    assert isinstance(response.error, NotFoundError)


def test_a_request_can_be_sent_again(server: api.Server) -> None:
    model = server.model("echo", 1)
    request = model.create_request(inputs={"x": X})
    for _ in range(2):
        (response,) = model.infer(request)
        assert response.outputs["y"].shape == (16,)


def test_async_infer_within_a_running_loop(server: api.Server) -> None:
    async def ask(number: int) -> list[float]:
        responses = server.model("echo").async_infer(inputs={"x": X[:1] + number})
        return [value async for r in responses for value in r.outputs["y"].numpy().tolist()]

    async def ask_all() -> list[list[float]]:
        # A call that waits works as well: the server has a loop of its own.
        (response,) = server.model("echo").infer(inputs={"x": X})
        assert response.final
        return await asyncio.gather(*(ask(number) for number in range(50)))

    assert asyncio.run(ask_all()) == [[float(number)] for number in range(50)]


def test_async_infer_needs_a_loop(server: api.Server) -> None:
    with pytest.raises(InvalidArgumentError, match="use infer"):
        server.model("echo").async_infer(inputs={"x": X})


def test_threads_share_a_server(server: api.Server) -> None:
    wrong: list[object] = []

    def ask(number: int) -> None:
        for step in range(100):
            (response,) = server.model("echo").infer(inputs={"x": X + number + step})
            if response.outputs["y"].numpy()[0] != number + step:
                wrong.append((number, step))

    threads = [threading.Thread(target=ask, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_bound_function_may_ask_another_model(server: api.Server) -> None:
    def twice(x: naiad.FP32[16]) -> naiad.FP32[16]:  # type: ignore[valid-type]
        (response,) = server.model("echo").infer(inputs={"x": x})
        return 2 * response.outputs["y"].numpy()

    server.bind("twice", twice)
    (response,) = server.model("twice").infer(inputs={"x": X})
    assert response.outputs["output"].numpy().tolist() == (2 * X).tolist()


def test_nothing_of_a_request_stays(server: api.Server) -> None:
    """Without the garbage collector: tensors may be large."""
    given = X.copy()
    seen = weakref.ref(given)
    gc.disable()
    try:
        for _ in range(2):
            list(server.model("echo").infer(inputs={"x": given}))
        del given
        wait_until(lambda: seen() is None, 10, "the array of a request is freed")
    finally:
        gc.enable()


# ---- questions and changes


def test_what_it_says_of_itself(server: api.Server) -> None:
    assert server.live()
    assert server.ready()
    assert "binary_tensor_data" in server.metadata()["extensions"]
    model = server.model("echo")
    assert model.ready()
    assert model.metadata()["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert model.config()["backend"] == "identity"
    before = model.statistics()["model_stats"][0]["inference_count"]
    list(model.infer(inputs={"x": X}))
    assert model.statistics()["model_stats"][0]["inference_count"] == before + 1
    assert 'nv_inference_request_success{model="echo",version="1"}' in server.metrics()
    assert server.models()["echo", 1].state == "READY"
    assert str(server.models(exclude_not_ready=True)["echo", 1]) == "{'name': 'echo', 'version': 1, 'state': 'READY'}"


def test_a_model_is_found_by_its_name_alone(server: api.Server) -> None:
    models = server.models()
    assert isinstance(models, api.ModelDictionary)
    assert (models["echo"].version, models["echo"].state) == (-1, None)
    (response,) = models["echo"].infer(inputs={"x": X})
    assert response.outputs["y"].numpy().tolist() == X.tolist()
    for key in ("nobody", ("echo", 7)):
        with pytest.raises(KeyError):
            models[key]


def test_an_unload_is_waited_for(server: api.Server) -> None:
    server.unload("text", wait_until_unloaded=True, polling_interval=0.01, timeout=30)
    assert server.models()["text", 1].state == "UNAVAILABLE"
    assert server.load("text").ready()


def test_load_and_unload(server: api.Server) -> None:
    server.unload("text")
    with pytest.raises(NotFoundError):
        list(server.model("text").infer(inputs={"x": ["a"]}))
    config = {"backend": "identity", "max_batch_size": 4,
              "input": [{"name": "x", "data_type": "TYPE_STRING", "dims": [-1]}],
              "output": [{"name": "y", "data_type": "TYPE_STRING", "dims": [-1]}]}  # fmt: skip
    model = server.load("text", {"config": json.dumps(config)})
    assert model.config()["max_batch_size"] == 4
    server.unload(model)
    assert server.load("text").config()["max_batch_size"] == 0


# ---- life


def test_options(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Server has no option htp_port: did you mean http_port"):
        naiad.Server(htp_port=1)
    with pytest.raises(OptionError, match="--http-port"):
        naiad.Server(http_port="x")
    with pytest.raises(UnavailableError, match="call start"):
        naiad.Server().model("echo")
    write_model(tmp_path, "broken", 'backend: "nothing"')
    with pytest.raises(ModelLoadError, match="needs an unknown backend 'nothing'"):
        naiad.Server(tmp_path).start()
    with naiad.Server([tmp_path, repository], exit_on_error=False) as server:
        assert not server.ready()
        assert server.model("echo").ready()
        with pytest.raises(InvalidArgumentError, match="runs already"):
            server.start()


def test_options_have_the_names_of_the_references_package(repository: Path) -> None:
    with api.Server(
        repository,
        server_id="other",
        model_control_mode=api.ModelControlMode.EXPLICIT,
        strict_model_config=False,
        metrics=True,
        pinned_memory_pool_size=1 << 20,
        cuda_memory_pool_sizes={0: 1 << 20},
        host_policies={"first": {"cpu-cores": "0"}},
        metrics_configuration={"": {"summary_latencies": "true"}},
    ) as server:
        assert server.metadata()["name"] == "other"
        list(server.load("echo").infer(inputs={"x": X}))
        assert "nv_inference_request_summary_us" in server.metrics()
        assert not server.metrics_url


@pytest.mark.parametrize("value", [True, False])
def test_a_flag_overrides_its_variable(value: bool) -> None:
    variables = {"NAIAD_DISABLE_AUTO_COMPLETE_CONFIG": str(not value).lower()}
    options = read_options({"strict_model_config": value}, ["."], variables, opens_all=False)
    assert options.disable_auto_complete_config is value


def test_a_server_starts_again(repository: Path) -> None:
    server = naiad.Server(repository)
    for _ in range(2):
        with server:
            (response,) = server.model("echo").infer(inputs={"x": X})
            assert response.outputs["y"].shape == (16,)
        assert not server.live()
        server.stop()


def server_threads() -> set[threading.Thread]:
    """The threads of event loops. Those that run models come and go, also for the servers of other tests."""
    return {thread for thread in threading.enumerate() if thread.name == "naiad-server"}


def test_the_ports_of_cloud_platforms_are_opened_by_name(
    repository: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/predict")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/health")
    with caplog.at_level("INFO", "naiad"), naiad.Server(repository):
        assert "Vertex AI" not in caplog.text
    monkeypatch.setenv("NAIAD_VERTEX_AI_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("NAIAD_SAGEMAKER_ADDRESS", "127.0.0.1")
    options = {"vertex_ai_port": 0, "sagemaker_port": 0, "vertex_ai_default_model": "echo"}
    with caplog.at_level("INFO", "naiad"), naiad.Server(repository, **options):
        assert "Started Sagemaker HTTPService at 127.0.0.1:" in caplog.text
        assert "Started Vertex AI HTTPService at 127.0.0.1:" in caplog.text
    before = server_threads()
    with pytest.raises(OptionError, match="Expect the default model 'gone' is loaded"):
        naiad.Server(repository, vertex_ai_port=0, vertex_ai_default_model="gone").start()
    assert server_threads() == before


def test_a_port_that_is_taken(naiad_server: naiad.Server) -> None:
    taken = naiad_server.http_url.rpartition(":")[2]
    before = server_threads()
    with pytest.raises(OptionError, match=f"Socket '127.0.0.1:{taken}' already in use"):
        naiad.Server(http_address="127.0.0.1", http_port=int(taken)).start()
    assert server_threads() == before


def test_the_fixture(naiad_server: naiad.Server) -> None:
    naiad_server.bind("doubler", lambda x: 2 * x)
    (response,) = naiad_server.model("doubler").infer(inputs={"x": [1, 2]})
    assert response.outputs["output"].numpy().tolist() == [2, 4]
    assert naiad_server.http_url.startswith("127.0.0.1:")


LEAKS = """
import gc, os, sys, threading
import psutil
import naiad

me = psutil.Process()


class Both:
    def setup(self, device): ...
    def predict(self, x: naiad.FP32[1]) -> naiad.FP32[1]:
        return x


async def coroutine(x):
    return x


def shared_memory():
    # Without the regions that other tests make meanwhile.
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return [name for name in names if not name.startswith("naiad-test-")]


def look():
    gc.collect()
    return (
        sorted(t.name for t in threading.enumerate()),
        [c.pid for c in me.children()],
        me.num_fds(),
        sorted(shared_memory()),
        sorted(n for n in os.listdir(os.environ["TMPDIR"]) if n.startswith("naiad")),
    )


def once():
    server = naiad.Server(http_address="127.0.0.1", http_port=0, grpc_port=0, grpc_address="127.0.0.1")
    server.bind("thread", Both, instances=2)
    server.bind("coroutine", coroutine)
    server.bind("process", Both, workers="process")
    server.start()
    for name in ("thread", "process"):
        (response,) = server.model(name).infer(inputs={"x": [1]})
        assert response.outputs["output"].numpy().tolist() == [1]
    assert len(look()[0]) > 3 and look()[1]
    server.stop()
    return look()


# The first one imports, and starts the reaper of the process, which stays.
first, later = once(), [once(), once()]
assert later[0] == later[1] == first, (first, later)
assert first[0] == ["MainThread"], first
assert first[1] == [] and first[4] == [], first
print("clean")
"""


@pytest.mark.slow
def test_nothing_is_left_after_stop(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LEAKS], capture_output=True, text=True, timeout=100, env=environment, check=False
    )
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stderr


SERVE = """
import naiad
server = naiad.Server(http_address="127.0.0.1", http_port=0, grpc_port=0, metrics_port=0)
server.bind("doubler", lambda x: 2 * x)
server.bind("tripler", lambda x: 3 * x, workers="process")
server.serve()
print("served")
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_with_a_signal(tmp_path: Path, number: int) -> None:
    program = tmp_path / "program.py"
    program.write_text(SERVE)
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, str(program)], stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: " is ready: " in log.read_text() or process.poll() is not None, 60, "the program serves")
        children = psutil.Process(process.pid).children()
        assert len(children) == 1
        process.send_signal(number)
        assert process.wait(60) == 0
        assert log.read_text().endswith("served\n")
        assert not children[0].is_running()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_program_that_forgets_to_stop_ends(tmp_path: Path) -> None:
    code = "import naiad; s = naiad.Server(); s.bind('d', lambda x: x); s.start(); print(s.ready())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)
