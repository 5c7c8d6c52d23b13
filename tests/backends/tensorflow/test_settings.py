from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from naiad.backends.tensorflow import settings
from naiad.backends.tensorflow.settings import GraphSettings, read_settings
from naiad.config.freeze import freeze
from naiad.config.rules import parameters
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from support import tensorflow_models as models
from support.backend_contract import config, context, group, running, started
from support.tensorflow_models import tf

NAME = "tensorflow"
PLATFORM = 'platform: "tensorflow_savedmodel" backend: "tensorflow" '
TENSORS = """max_batch_size: 4 input { name: "X" data_type: TYPE_FP32 dims: 64 }
output { name: "Y" data_type: TYPE_FP32 dims: 64 } """
ONE_CPU = 'instance_group [ { name: "m" kind: KIND_CPU count: 1 } ]'


def spec(text: str) -> ModelSpec:
    return freeze(config(PLATFORM + TENSORS + text + ("" if "instance_group" in text else ONE_CPU)))


def accelerator(name: str) -> str:
    return f'optimization {{ execution_accelerators {{ gpu_execution_accelerator {{ name: "{name}" }} }} }} '


def read(
    given: Mapping[str, str], level: int | None = None, instances: int = 1, cores: int = 8, **backend: str
) -> GraphSettings:
    return read_settings(context(Path("m"), cores, **backend), given, level, (), instances)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.dense(tmp_path / "m", 64)[0]


def refusal(path: Path, text: str, **backend: str) -> str:
    with pytest.raises(ModelLoadError) as caught, started(NAME, context(path, **backend), spec(text)):
        pass
    return str(caught.value)


# Threads


def test_cores_are_divided_among_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    assert read({}, instances=4).intra_threads == 8
    assert read({"MAX_SESSION_SHARE_COUNT": "2"}, instances=4).intra_threads == 4
    assert read({"MAX_SESSION_SHARE_COUNT": "1"}, instances=4).intra_threads == 2
    assert read({"TF_NUM_INTRA_THREADS": "3"}, instances=4).intra_threads == 3
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "5")
    assert read({}).intra_threads == 0, "the environment's number counts"


def test_operators_run_in_the_callers_thread_unless_threads_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    plain = read({})
    assert (plain.in_caller, plain.own_threads, plain.inter_threads) == (True, False, 0)
    several = read({"TF_NUM_INTER_THREADS": "2"})
    assert (several.in_caller, several.own_threads, several.inter_threads) == (False, True, 2)
    for text in ("True", "On", "1", "yes"):
        assert read({"TF_USE_PER_SESSION_THREADS": text}).own_threads
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "2")
    assert not read({}).in_caller


COUNT_THREADS = """
import sys, threading
from pathlib import Path
import numpy as np, psutil
from naiad.backends import registry
from support.backend_contract import context, group, spec

text, path = sys.argv[1], Path(sys.argv[2])
kept = []
for count in (1, 2, 4, 1):
    before = psutil.Process().num_threads() - threading.active_count()
    parameter = f'parameters {{ key: "TF_NUM_INTRA_THREADS" value {{ string_value: "{count}" }} }} '
    model = spec(text + parameter)
    kept.append(registry.create("tensorflow", context(path)))
    kept[-1].start(model)
    kept[-1].create_instance(group(model), 0).execute({"X": np.ones((1, 64), np.float32)}, ("Y",))
    after = psutil.Process().num_threads() - threading.active_count()
    print(after - before, end=" ", flush=True)
"""


@pytest.mark.slow
def test_every_session_has_the_threads_that_were_asked_for(model: Path) -> None:
    """In a process of its own, where the first session is one of the backend."""
    command = [sys.executable, "-c", COUNT_THREADS, PLATFORM + TENSORS, str(model)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("TF_OVERRIDE_GLOBAL_THREADPOOL", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    started_threads = [int(word) for word in done.stdout.split()]
    # The first session also starts threads that all of them share.
    assert started_threads[1:] == [2, 4, 1]


# Values


@pytest.mark.parametrize(
    ("level", "expected", "compiles"),
    [(None, "DEFAULT", False), (-1, "OFF", False), (0, "DEFAULT", False), (1, "ON_1", True), (2, "ON_2", True)],
)
def test_levels(level: int | None, expected: str, compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit")
    found = read({}, level)
    assert (found.jit_level, found.compiles) == (expected, compiles)
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_cpu_global_jit --tf_xla_auto_jit=1")
    assert found.compiles is (level != -1), "the environment decides where the configuration leaves it open"


def test_an_unknown_level_is_refused(model: Path) -> None:
    text = refusal(model, "optimization { graph { level: 3 } } ")
    assert "level: 3 } }: expected -1 (XLA off), 0 (TensorFlow's default), 1 or 2 (XLA on)" in text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TF_NUM_INTRA_THREADS", "-1", "expected a whole number of at least 0"),
        ("TF_NUM_INTER_THREADS", "two", "expected a whole number of at least 0"),
        ("MAX_SESSION_SHARE_COUNT", "0", "expected a whole number of at least 1"),
        ("TF_USE_PER_SESSION_THREADS", "maybe", 'expected "true" or "false"'),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, expected: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read({name: value})
    assert f"parameter '{name}' is \"{value}\", {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TF_NUM_INTRA_THREAD", "TF_NUM_INTRA_THREADS"),
        ("tf_signature_def", "TF_SIGNATURE_DEF"),
        ("MAX_SESSION_SHARE_COUNTS", "MAX_SESSION_SHARE_COUNT"),
    ],
)
def test_a_misspelt_parameter_is_refused(name: str, meant: str) -> None:
    text = f'parameters {{ key: "{name}" value {{ string_value: "1" }} }} '
    (problem,) = parameters.violations(config(PLATFORM + TENSORS + text))
    assert f"'{name}' of model 'm' is unknown to the backend 'tensorflow', did you mean '{meant}'?" in problem.message


def test_other_parameters_are_left_to_others() -> None:
    assert read({"execution": "thread", "max-batch-bytes": "10", "owner": "me"}) == read({})


def test_backend_settings() -> None:
    assert read({}, allow_soft_placement="false").soft_placement is False
    assert read({}, gpu_memory_fraction="0.5").gpu_fraction == 0.5
    assert read({}, version="2") == read({})
    for name, value, expected in (
        ("version", "1", "the version of the TensorFlow library that there is"),
        ("gpu-memory-fraction", "1.5", "a number from 0 to 1"),
        ("allow-soft-placement", "x", '"true" or "false"'),
    ):
        with pytest.raises(ModelLoadError) as caught:
            read({}, **{name.replace("-", "_"): value})
        assert f"backend config setting '{name}' is \"{value}\", expected" in str(caught.value)
        assert expected in str(caught.value)


# Optimisations


@pytest.mark.parametrize("level", [-1, 0, 1, 2])
def test_every_level_gives_the_same_results(tmp_path: Path, level: int) -> None:
    path, product = models.dense(tmp_path / "m", 64, 2)
    x = np.random.default_rng(3).standard_normal((3, 64), np.float32)
    with running(NAME, context(path), spec(f"optimization {{ graph {{ level: {level} }} }} ")) as instance:
        np.testing.assert_allclose(instance.execute({"X": x}, ("Y",))["Y"], x @ product, rtol=1e-3, atol=1e-3)


@pytest.mark.skipif(not settings.cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"}, reason="no bfloat16 in this CPU")
def test_mixed_precision_computes_in_bfloat16(tmp_path: Path) -> None:
    path, product = models.dense(tmp_path / "m", 64, 2)
    x = np.random.default_rng(3).standard_normal((4, 64), np.float32)
    with running(NAME, context(path), spec("")) as instance:
        exact = instance.execute({"X": x}, ("Y",))["Y"]
    with running(NAME, context(path), spec(accelerator("auto_mixed_precision"))) as instance:
        mixed = instance.execute({"X": x}, ("Y",))["Y"]
    scale = float(np.abs(exact).max())
    np.testing.assert_allclose(exact, x @ product, atol=scale * 1e-5)
    assert scale * 1e-4 < float(np.abs(mixed - exact).max()) < scale * 3e-2, "bfloat16 has 8 bits"


def test_mixed_precision_needs_a_processor_for_it(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tmp_path / "cpuinfo"
    plain.write_text("processor : 0\nflags\t\t: fpu avx2 avx512f\n")
    monkeypatch.setattr(settings, "_CPU_INFO", plain)
    text = refusal(model, accelerator("auto_mixed_precision"))
    assert "computes in bfloat16 on a processor, and this one cannot" in text
    assert "remove it, or run the model on a processor with AVX512-BF16" in text


def test_accelerators_of_gpus_are_ignored_on_the_cpu(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("tensorrt", "gpu_io"):
        with running(NAME, context(model), spec(accelerator(name))):
            pass
        assert f"GPU Execution Accelerator '{name}' will be ignored for model instance on CPU" in caplog.text


def test_an_unknown_accelerator_is_refused(model: Path) -> None:
    text = refusal(model, accelerator("auto_mixed_precisions"))
    assert (
        "unknown Execution Accelerator 'auto_mixed_precisions' is requested, did you mean 'auto_mixed_precision'?"
        in text
    )


def test_a_gpu_that_is_not_there_is_named(model: Path) -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU")
    text = refusal(model, 'instance_group [ { name: "g" kind: KIND_GPU count: 1 gpus: 0 } ]')
    assert "instance group 'g' has kind KIND_GPU, and tensorflow finds no GPU" in text


def test_instances_of_kind_model_run_where_the_model_says(model: Path) -> None:
    at = spec('instance_group [ { name: "m" kind: KIND_MODEL count: 1 } ]')
    with started(NAME, context(model), at) as backend:
        instance = backend.create_instance(group(at), 0)
        assert instance.execute({"X": np.ones((1, 64), np.float32)}, ("Y",))["Y"].shape == (1, 64)
        instance.close()
