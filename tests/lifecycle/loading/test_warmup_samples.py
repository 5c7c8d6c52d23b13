"""Warm-up: what every instance runs before its version is ready, in threads and in processes, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import struct
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.freeze import freeze
from naiad.config.read import ConfigFormat, parse_config
from naiad.config.spec import BatchingSpec
from naiad.engine.engine import Engine
from naiad.errors import ModelLoadError, NaiadError
from naiad.execution.instances.warmup import Warmup
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.worker.instance import ProcessInstance
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.loading.warmup_samples import automatic_samples, configured_samples
from naiad.lifecycle.manager import ModelManager
from support.child_processes import children
from support.event_loops import run, until
from support.explicit_manager import GONE, House, house
from support.framework_models import WAYS, install, write_rowdy
from support.loaded_models import FunctionBackend, negate, spec
from support.worker_models import Caller, loading, write_model

# Notes what it is given: in each process one line of JSON for each batch.
NOTES = """
    def initialize(self, args):
        self.name = args["model_instance_name"]

    def execute(self, requests):
        import json
        inputs = [[[i.name(), i.as_numpy().tolist()] for i in r.inputs()] for r in requests]
        def text(value):
            return value.decode() if isinstance(value, bytes) else value
        with open(os.path.join(os.path.dirname(__file__), "notes"), "a") as file:
            file.write(json.dumps([self.name, inputs], default=text) + "\\n")
        found = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)]) for x in found]
"""
STATS = ("inference_count", "execution_count", "last_inference")


@contextlib.asynccontextmanager
async def serving(repository: Path, **settings: Any) -> AsyncIterator[Engine]:
    """An engine with all models of a repository; ``settings`` are those of loads."""
    manager = ModelManager(LoadSettings(lambda backend: {}, cores=1, **settings), 4)
    engine = Engine(manager, "test", True)
    async with loading(manager, repository):
        yield engine


def given(name: str = "x", data: str = "zero_data: true", dtype: str = "TYPE_FP32", dims: str = "2") -> str:
    return f'inputs {{ key: "{name}" value {{ data_type: {dtype} dims: [ {dims} ] {data} }} }}'


def sample(inputs: str = "", name: str = "s", batch_size: int = 1, count: int = 0) -> str:
    inputs = inputs or given()
    return f'model_warmup {{ name: "{name}" batch_size: {batch_size} count: {count} {inputs} }}\n'


def notes(file: Path) -> list[list[Any]]:
    path = file.parent / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def problem(repository: Path, more: str, methods: str = NOTES) -> str:
    """Why a Python model with ``more`` in its configuration cannot be loaded."""
    write_model(repository, methods, more)
    found = ""

    async def test() -> None:
        nonlocal found
        async with serving(repository) as engine:
            (row,) = engine.index(False)
            assert row["state"] == "UNAVAILABLE"
            assert children() == []
            found = row["reason"]

    run(test())
    return found


def test_every_instance_of_a_python_model(tmp_path: Path) -> None:
    more = "instance_group { count: 2 kind: KIND_CPU }" + sample(batch_size=3, count=2) + sample(given(dims="1"), "t")
    file = write_model(tmp_path, NOTES, more)

    async def test() -> None:
        async with serving(tmp_path) as engine:
            assert engine.is_ready()
            told = notes(file)
            for name in ("m_0_0", "m_0_1"):
                assert [inputs for who, inputs in told if who == name] == [
                    3 * [[["x", [[0.0, 0.0]]]]],
                    3 * [[["x", [[0.0, 0.0]]]]],
                    [[["x", [[0.0]]]]],
                ]
            (found,) = engine.statistics("m", None)["model_stats"]
            assert [found[key] for key in STATS] == [0, 0, 0]
            assert found["inference_stats"]["success"]["count"] == 0
            assert found["batch_stats"] == []
            caller = Caller([5.0, 6.0])
            engine.find("m", None).submit(caller)
            assert (await caller.outputs())["y"].tolist() == [[5.0, 6.0]]
            (found,) = engine.statistics("m", None)["model_stats"]
            assert [found[key] for key in STATS[:2]] == [1, 1]

    run(test())


def test_a_batch_size_of_zero_and_passive_instances_run_nothing(tmp_path: Path) -> None:
    groups = "instance_group [ { count: 1 kind: KIND_CPU }, { count: 1 kind: KIND_CPU passive: true } ]"
    file = write_model(tmp_path, NOTES, groups + sample(batch_size=0) + sample(name="t"))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            assert engine.is_ready()
            assert [who for who, _ in notes(file)] == ["m_0_0"]

    run(test())


@pytest.mark.parametrize("wire", ["BOOL", "UINT8", "INT64", "FP16", "FP32", "FP64", "STRING", "BF16"])
def test_random_data(tmp_path: Path, wire: str) -> None:
    config = f"""backend: "identity"
        input [{{ name: "x" data_type: TYPE_{wire} dims: [ -1 ] }}]
        output [{{ name: "y" data_type: TYPE_{wire} dims: [ -1 ] }}]"""
    from naiad.config.freeze import freeze
    from naiad.config.read import ConfigFormat, parse_config
    from naiad.lifecycle.loading.warmup_samples import configured_samples

    text = config + sample(given(data="random_data: true", dtype=f"TYPE_{wire}", dims="1000"))
    frozen = freeze(parse_config(text, ConfigFormat.PBTXT).config)
    (made,) = configured_samples(frozen, tmp_path, None)
    array = made.inputs["x"]
    assert (array.shape, array.dtype) == ((1000,), frozen.inputs["x"].dtype.numpy)
    if wire == "STRING":
        assert set(array.tolist()) == {b""}
    elif wire in ("FP16", "FP32", "FP64", "BF16"):
        values = array.astype(np.float64)
        assert values.min() >= 0
        assert 0.9 < values.max() <= 1
        assert 0.4 < values.mean() < 0.6
    elif wire == "INT64":
        assert array.min() < -(2**62)
        assert array.max() > 2**62
    else:
        assert len(set(array.tolist())) == (2 if wire == "BOOL" else len(set(range(256)) & set(array.tolist())))
    (again,) = configured_samples(frozen, tmp_path, None)
    assert again.inputs["x"].tobytes() == array.tobytes()


LARGE = """backend: "identity" max_batch_size: 4
    input [{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }] output [{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }]"""


@pytest.mark.parametrize(
    ("text", "together"),
    [
        # Each of them may have as many.
        ("".join(sample(given(dims="500000000"), name=f"s{n}") for n in range(10)), 20_000_000_000),
        (sample(given(dims="300000000"), batch_size=4), 4_800_000_000),
        (sample(given(dims="300000000")) + sample(given(dims="1"), name="t"), 1_200_000_004),
    ],
)
def test_samples_that_are_too_large_together_are_refused_before_one_is_made(
    tmp_path: Path, text: str, together: int
) -> None:
    frozen = freeze(parse_config(LARGE + text, ConfigFormat.PBTXT).config)
    refused = f"have {together} bytes together, and at most 1000000000 are taken"
    tracemalloc.start()
    try:
        with pytest.raises(ModelLoadError, match=refused):
            configured_samples(frozen, tmp_path, None, 1_000_000_000)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 1_000_000


def test_samples_up_to_the_bound_are_made(tmp_path: Path) -> None:
    text = sample(given(dims="250"), batch_size=2) + sample(given(dims="500"), name="t")
    frozen = freeze(parse_config(LARGE + text, ConfigFormat.PBTXT).config)
    assert [made.name for made in configured_samples(frozen, tmp_path, None, 4000)] == ["s", "t"]
    with pytest.raises(ModelLoadError, match="have 4000 bytes together, and at most 3999 are taken"):
        configured_samples(frozen, tmp_path, None, 3999)


def test_a_sample_is_made_when_it_is_read_and_shared_while_it_is_used(tmp_path: Path) -> None:
    size = 8_000_000
    texts = [sample(given(data="random_data: true", dims=str(size // 4)), name=f"s{n}") for n in range(4)]
    frozen = freeze(parse_config(LARGE + "".join(texts), ConfigFormat.PBTXT).config)
    tracemalloc.start()
    try:
        samples = configured_samples(frozen, tmp_path, None)
        _, most_bytes = tracemalloc.get_traced_memory()
        assert most_bytes < size
        first = samples[0]
        assert samples[0] is first
        del first
        names = [made.name for made in samples]
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert names == ["s0", "s1", "s2", "s3"]
    # The sample that ran last, and the next one.
    assert most_bytes < 2.5 * size


def test_a_file_that_went_after_the_check_fails_the_sample(tmp_path: Path) -> None:
    file = tmp_path / "warmup" / "x"
    file.parent.mkdir()
    file.write_bytes(bytes(8))
    text = LARGE + sample(given(data='input_data_file: "x"'))
    samples = configured_samples(freeze(parse_config(text, ConfigFormat.PBTXT).config), tmp_path, None)
    assert samples[0].inputs["x"].tobytes() == bytes(8)
    file.write_bytes(bytes(7))
    with pytest.raises(ModelLoadError, match="expects 8 bytes, but the data provided from x only has 7 bytes"):
        samples[0]
    file.unlink()
    with pytest.raises(NaiadError, match=r"failed to open text file for read .*/warmup/x: No such file"):
        samples[0]


def test_automatic_samples_that_are_too_large_are_left_out() -> None:
    text = LARGE.replace("-1", "1000") + "dynamic_batching { preferred_batch_size: [ 2 ] }"
    frozen = freeze(parse_config(text, ConfigFormat.PBTXT).config)
    assert [made.name for made in automatic_samples(frozen)] == ["auto_1", "auto_2", "auto_4"]
    assert [made.name for made in automatic_samples(frozen, 12_000)] == ["auto_1", "auto_2"]


def test_data_from_a_file(tmp_path: Path) -> None:
    strings = 'input [{ name: "t" data_type: TYPE_STRING dims: [ 2 ] }]\n'
    inputs = given(data='input_data_file: "sub/numbers"') + given("t", 'input_data_file: "texts"', "TYPE_STRING")
    file = write_model(tmp_path, NOTES, strings + sample(inputs))
    folder = tmp_path / "m" / "warmup"
    (folder / "sub").mkdir(parents=True)
    # Longer than is needed, which is no problem.
    (folder / "sub" / "numbers").write_bytes(struct.pack("<3f", 1.5, -2, 9))
    (folder / "texts").write_bytes(b"\3\0\0\0abc\0\0\0\0")

    async def test() -> None:
        async with serving(tmp_path) as engine:
            assert engine.is_ready()
            ((_, (inputs,)),) = notes(file)
            assert dict(inputs) == {"x": [[1.5, -2.0]], "t": [["abc", ""]]}

    run(test())


REFUSED = {
    sample(given(dims="-1")): "warmup setting expects all variable-size dimensions are specified for input 'x'",
    sample(given(data="")): "[request id: <id_unknown>] warmup setting expects input 'x' to have input_data_type set",
    sample(given(dims="-5")): "warmup setting has negative dims [-5] for input 'x'",
    sample(given("z") + given()): "warmup setting has data for input 'z', which is not in model 'm'",
    sample(" "): "expected 1 inputs but got 0 inputs for model 'm'",
    sample(given(dtype="TYPE_INVALID")): "inference input 'x' data-type is '<invalid>', but model 'm' expects 'FP32'",
    sample(given(dtype="TYPE_INT8")): "inference input 'x' data-type is 'INT8', but model 'm' expects 'FP32'",
    sample(given(dims="2, 2")): "unexpected shape for input 'x' for model 'm'. Expected [-1,-1], got [1,2,2].",
    sample(batch_size=9): "failed to run warmup sample 's': batch size 9 for 'm_0', max allowed is 8",
    sample(given(dims="999999999999")): "warmup setting asks for 3999999999996 bytes for input 'x'",
    sample(given(dims="9223372036854775807, 2")): "warmup setting asks for",
    sample(given(data='input_data_file: "x"')): "failed to open text file for read m/warmup/x: No such file or",
    sample(given(data='input_data_file: "../config.pbtxt"')): "it has to be one in the model's folder 'warmup'",
    sample(given(data='input_data_file: "/dev/zero"')): "it has to be one in the model's folder 'warmup'",
    sample(given(data='input_data_file: ""')): "it has to be one in the model's folder 'warmup'",
    sample(given(data='input_data_file: "."')): "it has to be one in the model's folder 'warmup'",
    sample(
        given(data='input_data_file: "short"')
    ): "expects 8 bytes, but the data provided from short only has 3 bytes",
}


@pytest.mark.parametrize("more", REFUSED)
def test_what_is_refused(tmp_path: Path, more: str) -> None:
    (tmp_path / "m" / "warmup").mkdir(parents=True)
    (tmp_path / "m" / "warmup" / "short").write_bytes(b"abc")
    assert REFUSED[more] in problem(tmp_path, more)


def test_data_for_a_model_without_inputs() -> None:
    text = 'name: "m" output [{ name: "y" data_type: TYPE_FP32 dims: [ 1 ] }]\n' + sample(given())
    frozen = freeze(parse_config(text, ConfigFormat.PBTXT).config)
    with pytest.raises(ModelLoadError, match=r"for input 'x', which is not in model 'm'\. It has no inputs$"):
        configured_samples(frozen, Path(), None)[0]


RAISES = """
    def execute(self, requests):
        raise ValueError("no luck")
"""
ANSWERS_ERRORS = """
    def execute(self, requests):
        return [pb_utils.InferenceResponse(error=pb_utils.TritonError(f"no luck {i}")) for i in range(len(requests))]
"""
DIES = """
    def execute(self, requests):
        os._exit(3)
"""


@pytest.mark.parametrize(
    ("methods", "text"), [(RAISES, "no luck"), (ANSWERS_ERRORS, "no luck 0; no luck 1"), (DIES, "exit code 3")]
)
def test_a_sample_that_fails_fails_the_load(tmp_path: Path, methods: str, text: str) -> None:
    found = problem(tmp_path, "instance_group { count: 2 kind: KIND_CPU }" + sample(batch_size=2), methods)
    assert found.startswith("Internal: failed to run warmup sample 's': ")
    assert text in found


@pytest.mark.slow
def test_a_sample_that_takes_too_long_fails_the_load(tmp_path: Path) -> None:
    limit = 'parameters { key: "execute-timeout-seconds" value { string_value: "1" } }'
    found = problem(tmp_path, limit + sample(), "\ndef execute(self, requests):\n    time.sleep(60)\n")
    assert "failed to run warmup sample 's': " in found
    assert "ran for longer than 1 s" in found


def test_a_decoupled_model_and_one_that_gives_requests_back(tmp_path: Path) -> None:
    streams = """
        def execute(self, requests):
            for request in requests:
                sender = request.get_response_sender()
                for _ in range(3):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    gives_back = """
        def initialize(self, args):
            self.turns = 0

        def execute(self, requests):
            self.turns += 1
            if self.turns < 3:
                for request in requests:
                    request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                return [None] * len(requests)
            with open(os.path.join(os.path.dirname(__file__), "turns"), "w") as file:
                file.write(str(self.turns))
            return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]) for _ in requests]
    """
    write_model(tmp_path, streams, "model_transaction_policy { decoupled: true }" + sample(batch_size=2, count=2))
    other = write_model(tmp_path, gives_back, sample(batch_size=2), "back")

    async def test() -> None:
        async with serving(tmp_path) as engine:
            assert engine.not_ready() == []
            assert (other.parent / "turns").read_text() == "3"

    run(test())


def test_a_model_is_called_while_another_warms_up(tmp_path: Path) -> None:
    calls = """
        def execute(self, requests):
            found = []
            for request in requests:
                x = pb_utils.get_input_tensor_by_name(request, "x")
                call = pb_utils.InferenceRequest(model_name="echo", requested_output_names=["y"], inputs=[x])
                while not pb_utils.is_model_ready("echo"):
                    time.sleep(0.01)
                found.append(pb_utils.InferenceResponse(call.exec().output_tensors()))
            return found
    """
    write_model(tmp_path, calls, sample())
    write_model(tmp_path, name="echo")

    async def test() -> None:
        async with serving(tmp_path) as engine:
            assert engine.not_ready() == []
            (found,) = engine.statistics("echo", None)["model_stats"]
            # A call is a request like any other.
            assert found["inference_count"] == 1

    run(test())


@pytest.mark.parametrize("way", WAYS)
def test_a_framework_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    install(tmp_path / "code", monkeypatch)
    repository = tmp_path / "models"
    write_rowdy(repository, way, more=sample(batch_size=3, count=2))
    write_rowdy(repository, way, "bad", more=sample(given(data='input_data_file: "dislikes"'), batch_size=2))
    (repository / "bad" / "warmup").mkdir()
    (repository / "bad" / "warmup" / "dislikes").write_bytes(struct.pack("<2f", 102, 0))

    async def test() -> None:
        async with serving(repository) as engine:
            assert engine.not_ready() == ["bad:1: Internal: failed to run warmup sample 's': this input is not liked"]
            (found,) = engine.statistics("m", None)["model_stats"]
            assert [found[key] for key in STATS] == [0, 0, 0]

    run(test())


# In threads


def test_instances_in_threads_run_samples_where_they_will_serve() -> None:
    import threading

    seen: list[tuple[str, list[float]]] = []

    def make(index: int) -> Any:
        def execute(inputs: Arrays, outputs: Any) -> Arrays:
            seen.append((threading.current_thread().name, inputs["x"].ravel().tolist()))
            return negate(inputs, outputs)

        return execute

    batching = BatchingSpec((2, 4))

    async def test() -> None:
        model = spec(max_batch_size=8, batching=batching, count=2)
        backend = FunctionBackend(make)
        found = LoadedModel(model, 1, backend, asyncio.get_running_loop())
        warmup = Warmup(automatic_samples(model))
        await asyncio.to_thread(found.start, warmup)
        try:
            sizes = [len(values) for name, values in seen if name == "naiad-m_0"]
            assert sizes == [1, 2, 4, 8]
            assert [len(values) for name, values in seen if name == "naiad-m_1"] == sizes
            assert found.statistics.execution_count == 0
            # Samples may be large, and are needed no more.
            assert warmup.samples == ()
        finally:
            assert found.close(10)
            found.detach()

    run(test())


def test_a_failed_sample_closes_the_instances_in_threads(tmp_path: Path) -> None:
    def fails(inputs: Arrays, outputs: Any) -> Arrays:
        raise ValueError("no luck")

    async def test() -> None:
        model = spec(count=2)
        backend = FunctionBackend(lambda index: fails)
        found = LoadedModel(model, 1, backend, asyncio.get_running_loop())
        (made, *_) = automatic_samples(model)
        from dataclasses import replace

        with pytest.raises(Exception, match="failed to run warmup sample 'auto_1': model 'm' failed: ValueError"):
            await asyncio.to_thread(found.start, Warmup([replace(made, is_needed=True)]))
        assert [len(i.closed_in) for i in backend.instances] == [1]
        assert backend.closed == 1

    run(test())


# Automatic


@pytest.mark.slow
def test_automatic_samples_follow_the_signature(tmp_path: Path) -> None:
    more = """dynamic_batching { preferred_batch_size: [ 2, 4 ] }
        input [{ name: "t" data_type: TYPE_STRING dims: [ -1, 2 ] }, { name: "o" data_type: TYPE_INT8 dims: [ 1 ]
        optional: true }]"""
    file = write_model(tmp_path, NOTES, more)
    write_model(tmp_path, RAISES, name="fails")
    write_model(tmp_path, DIES, name="dies")
    own = write_model(tmp_path, NOTES, sample(given(dims="7")), name="own")

    async def test() -> None:
        async with serving(tmp_path, auto_warmup=True) as engine:
            # A warm-up of this kind that fails is a warning.
            assert engine.not_loaded() == []
            batches = [dict(inputs) for _, (inputs,) in notes(file)]
            assert [len(batch["x"]) for batch in batches] == [1, 2, 4, 8]
            assert batches[1] == {"x": [[0.0], [0.0]], "t": 2 * [[["", ""]]]}
            assert [dict(inputs)["x"] for _, (inputs,) in notes(own)] == [[7 * [0.0]]]

    run(test())


# Cancelled

LONG = """
    def execute(self, requests):
        with open(os.path.join(os.path.dirname(__file__), "begun"), "w") as file:
            file.write(".")
        time.sleep(0.2)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]) for _ in requests]
"""


async def warming_up(found: House) -> asyncio.Task[None]:
    file = write_model(found.repository, LONG, sample(count=4_000_000_000))
    loading = asyncio.ensure_future(found.manager.load_model("m"))
    async with asyncio.timeout(10):
        while not (file.parent / "begun").exists():
            await asyncio.sleep(0.01)
    assert found.index()["m:1"] == ("LOADING", "")
    return loading


def test_an_unload_cancels_a_warm_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            loading = await warming_up(found)
            await asyncio.wait_for(found.manager.unload_model("m"), 10)
            with pytest.raises(Exception, match="the warm-up was cancelled: the model is to be unloaded"):
                await loading
            await found.done({"m:1": GONE})
            assert children() == []

    run(test())


def test_the_end_of_the_server_cancels_a_warm_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with house(tmp_path) as found:
            loading = await warming_up(found)
            assert await found.manager.unload_all(20)
            with pytest.raises(Exception, match="the warm-up was cancelled: the server is stopping"):
                await loading
            assert children() == []

    run(test())


# In a process that was started again


def instance_of(engine: Engine) -> ProcessInstance:
    (instance,) = engine.find("m", None).instances  # type: ignore[attr-defined]
    assert isinstance(instance, ProcessInstance)
    return instance


def test_a_process_that_comes_back_is_warmed_up_before_it_serves(tmp_path: Path) -> None:
    file = write_model(tmp_path, NOTES, sample(count=2))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            os.kill(instance_of(engine).pid, signal.SIGKILL)
            await until(lambda: engine.find("m", None).problem)
            waits = Caller([5.0])
            engine.find("m", None).submit(waits)
            assert (await waits.outputs())["y"].tolist() == [[5.0]]
            told = [inputs[0][0][1] for _, inputs in notes(file)]
            assert told == [[[0.0, 0.0]]] * 4 + [[[5.0]]]
            assert engine.find("m", None).problem == ""
            (found,) = engine.statistics("m", None)["model_stats"]
            assert [found[key] for key in STATS[:2]] == [1, 1]

    run(test())


ONCE = """
    def execute(self, requests):
        mark = os.path.join(os.path.dirname(__file__), "mark")
        if os.path.exists(mark):
            raise ValueError("not again")
        open(mark, "w").close()
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", np.zeros((1, 1), np.float32))]) for _ in requests]
"""


@pytest.mark.slow
@pytest.mark.parametrize("methods", [ONCE, LONG], ids=["fails", "unloaded meanwhile"])
def test_a_process_that_does_not_get_warm_again(tmp_path: Path, caplog: pytest.LogCaptureFixture, methods: str) -> None:
    write_model(tmp_path, methods, sample(count=1 if methods is ONCE else 3))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            os.kill(instance_of(engine).pid, signal.SIGKILL)
            await until(lambda: "m_0 runs again" in caplog.text)
            if methods is ONCE:
                await until(lambda: "m_0 is not warm: failed to run warmup sample 's': " in caplog.text)
                await until(lambda: engine.find("m", None).problem == "")

    with caplog.at_level("INFO", "naiad"):
        run(test())


@pytest.mark.slow
def test_a_process_that_only_ever_warms_up_is_given_up_in_time(tmp_path: Path) -> None:
    methods = """
        def execute(self, requests):
            x = pb_utils.get_input_tensor_by_name(requests[0], "x").as_numpy()
            if x.any():
                os.kill(os.getpid(), signal.SIGKILL)
            return [pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])]
    """
    write_model(tmp_path, methods, sample(count=1))

    async def test() -> None:
        async with serving(tmp_path) as engine:
            pauses = []
            for _ in range(3):
                caller = Caller([1.0])
                engine.find("m", None).submit(caller)
                with pytest.raises(NaiadError, match="killed by SIGKILL"):
                    await caller.outputs()
                pauses.append(instance_of(engine).back_off.next_s)
            assert pauses == [0.2, 0.4, 0.8]
            caller = Caller([1.0])
            engine.find("m", None).submit(caller)
            with pytest.raises(NaiadError, match="killed by SIGKILL"):
                await caller.outputs()
            assert instance_of(engine).back_off.next_s > 0.8, "its warm-up is no work"

    run(test())
