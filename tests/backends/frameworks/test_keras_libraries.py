"""The contract of framework backends for files of Keras on TensorFlow and on JAX, in threads of the server.

The tests themselves have Keras on torch, which also makes the expected results: a file runs on any of the three.
``test_keras.py`` has the other modes, in which Keras imports another library in the same way.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("keras") is None or find_spec("torch") is None:
    pytest.skip("the extra keras, or torch for it, is not installed", allow_module_level=True)

from backends.contract import LARGE, MIB, FrameworkContract, writes
from support.framework_server import framework_server
from support.keras_contract import keras_framework

pytestmark = pytest.mark.slow

OTHER_ORDER = "another library than that of the tests adds up in another order"


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
class TestTensorFlow(FrameworkContract):
    framework = keras_framework(
        variables={"KERAS_BACKEND": "tensorflow"},
        modes=("thread",),
        tolerance=1e-5,
        tolerance_reason=OTHER_ORDER,
        # Fewer: each load traces the model once more.
        reloads=(5, 30),
        # Names of layers are those of scopes, which have letters of ASCII only.
        odd_names=("0", "x_.-"),
        failure=r"keras: InvalidArgumentError: indices\[0,0\] = 99 is not in \[0, 4\) .in functional.*embedding",
    )


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")
class TestJax(FrameworkContract):
    framework = keras_framework(
        variables={"KERAS_BACKEND": "jax"},
        modes=("thread",),
        tolerance=1e-5,
        tolerance_reason=OTHER_ORDER,
        # Fewer: each load traces the model once more.
        reloads=(5, 30),
        failing=None,
        failure="",
        lacks={"failing": "JAX has no errors in runs: an index beyond a table reads its last row or NaN"},
    )


@pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
def test_an_unload_gives_large_weights_back(tmp_path: Path) -> None:
    """A model of Keras is garbage in cycles, and full collections are rare: each unload has its own.

    On TensorFlow, since JAX frees its arrays at times of its own.
    """
    framework = keras_framework(variables={"KERAS_BACKEND": "tensorflow"}, modes=("thread",))
    with framework_server(framework, "thread", tmp_path, MALLOC_ARENA_MAX="1") as served:
        served.write("large", writes(framework, hidden=LARGE))

        def reload() -> int:
            served.load("large")
            served.unload("large")
            return served.anonymous_memory_bytes()

        left = [reload() for _ in range(8)]
        grown = min(left[-3:]) - max(left[:3])
        assert grown < 30 * MIB, f"five more reloads of 64 MiB each left {grown / MIB:.0f} MiB"
