"""TensorFlow models behind a server, as a user has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad import testing
from support import tensorflow_models as models
from support.lazy_module import LazyModule
from support.tensorflow_models import tf

# A server imports TensorFlow for seconds; the other files of this folder test the backend without one.
# The start counts as time of the first test: three processes import TensorFlow and compile models beside each other.
START_S = 240
pytestmark = [pytest.mark.slow, pytest.mark.timeout(START_S + 60)]

saved_model_cli: Any = LazyModule("tensorflow.python.tools.saved_model_cli")
WAYS = ("thread", "process", "shared")
WIDTH = 8


@dataclass(frozen=True)
class Served:
    """The models ``plain``, without a configuration, and one for each way of execution, with XLA."""

    server: testing.RunningServer
    repository: Path
    compiled: Path

    def answer(self, model: str, x: np.ndarray) -> np.ndarray:
        given = {"name": "X", "datatype": "FP32", "shape": list(x.shape), "data": x.ravel().tolist()}
        found = self.server.infer(model, {"inputs": [given]}).json()["outputs"][0]
        return np.array(found["data"], np.float32).reshape(found["shape"])


def file_of(repository: Path, name: str, config: str = "") -> Path:
    """The path for the SavedModel of a new model."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    if config:
        (repository / name / "config.pbtxt").write_text(config)
    return version / "model.savedmodel"


def write_compiled(repository: Path, way: str) -> None:
    """A model that XLA may compile, whose operators have the name of its way in theirs."""
    config = f"""platform: "tensorflow_savedmodel" max_batch_size: 40 optimization {{ graph {{ level: 1 }} }}
        parameters {{ key: "execution" value {{ string_value: "{way}" }} }}"""

    def call(X: Any) -> Mapping[str, Any]:
        with tf.name_scope(f"of_{way}"):
            return {"Y": tf.tanh(X * 2 + 1) - tf.exp(X)}

    models.save(file_of(repository, way, config), call, X=("FP32", (None, WIDTH)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    repository, compiled = folder / "models", folder / "compiled"
    models.dense(file_of(repository, "plain"), WIDTH, 2)
    for way in WAYS:
        write_compiled(repository, way)
    given = testing.server_environment()
    given.pop("TF_CPP_MIN_LOG_LEVEL", None)
    given |= {
        "TF_XLA_FLAGS": "--tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1",
        # Names with a time in them, since several processes write into the folder.
        "XLA_FLAGS": f"--xla_dump_to={compiled} --xla_dump_include_timestamp=true",
    }
    with testing.serving(folder / "log", repository, env=given, start_s=START_S) as server:
        yield Served(server, repository, compiled)


def test_a_folder_without_a_configuration_is_served(served: Served, tmp_path: Path) -> None:
    """The answer is that of TensorFlow's own tool."""
    x = np.random.default_rng(5).standard_normal((3, WIDTH), np.float32)
    found = served.answer("plain", x)
    model = served.repository / "plain" / "1" / "model.savedmodel"
    # Not as a program, which would import TensorFlow once more.
    saved_model_cli.run_saved_model_with_feed_dict(str(model), "serve", "serving_default", {"X": x}, tmp_path, False)
    assert found.tolist() == np.load(tmp_path / "Y.npy").tolist()
    config = served.server.get("/v2/models/plain/config").json()
    assert (config["platform"], config["backend"], config["max_batch_size"]) == (
        "tensorflow_savedmodel",
        "tensorflow",
        4,
    )


@pytest.mark.parametrize("way", WAYS)
def test_variables_of_the_environment_reach_tensorflow(served: Served, way: str) -> None:
    """With TF_XLA_FLAGS alone XLA compiles for the processor."""
    found = [path.read_text(errors="replace") for path in served.compiled.iterdir()]
    assert any(f"of_{way}" in text for text in found)
    x = np.random.default_rng(6).standard_normal((2, WIDTH), np.float32)
    np.testing.assert_allclose(served.answer(way, x), np.tanh(x * 2 + 1) - np.exp(x), rtol=1e-5, atol=1e-6)


def test_no_request_waits_for_a_compiler(served: Served) -> None:
    def compiled() -> list[str]:
        return sorted(path.name for path in served.compiled.iterdir())

    before = compiled()
    assert before, "XLA compiled while the models loaded"
    for rows in (1, 2, 3, 40, 29, 29, 29, 11, 12, 13, 13, 13, 1):
        for way in WAYS:
            served.answer(way, np.ones((rows, WIDTH), np.float32))
    assert compiled() == before


def test_the_log_stays_quiet(served: Served) -> None:
    """Of lines that TensorFlow itself writes, only those of its import are there, about which nothing can be done."""
    lines = [line for line in served.server.log.splitlines() if "oneDNN custom operations" not in line]
    noise = ("tensorflow/", "deprecated", "WARNING:tensorflow", "Instructions for updating", "cuda", "MLIR")
    assert [line for line in lines if any(word in line for word in noise)] == []


def test_variables_are_in_memory_once(tmp_path: Path) -> None:
    """Two instances, which is the number without a configuration, and 96 MiB of variables."""
    models.dense(file_of(tmp_path / "models", "small"), WIDTH)
    models.dense(file_of(tmp_path / "models", "large"), 1024, 24)
    control = ("--model-control-mode=explicit", "--load-model=small")
    with testing.serving(tmp_path / "log", tmp_path / "models", *control, start_s=START_S) as server:
        before = server.memory_bytes()
        assert server.post("/v2/repository/models/large/load", {}).status == 200
        x = {"name": "X", "datatype": "FP32", "shape": [1, 1024], "data": [0.5] * 1024}
        assert server.infer("large", {"inputs": [x]}).status == 200
        assert server.memory_bytes() - before <= 1.3 * (96 << 20)
