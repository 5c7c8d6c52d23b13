"""TensorFlow is imported without Keras and JAX, which can be imported and used afterwards."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("needs the extra tensorflow", allow_module_level=True)

PROGRAM = """
import importlib.util, sys
from naiad.backends.tensorflow.session import prepare_framework

prepare_framework()
print(sorted({"keras", "jax"} & sys.modules.keys()))
assert not [each for each in sys.meta_path if type(each).__module__.startswith("naiad")]
import tensorflow as tf

if importlib.util.find_spec("keras"):
    layers = [tf.keras.layers.Input([3]), tf.keras.layers.Dense(2, kernel_initializer="ones")]
    print(tf.keras.Sequential(layers)(tf.ones([1, 3])).numpy().tolist())
if importlib.util.find_spec("jax"):
    import jax

    print(jax.__name__)
"""


def test_keras_and_jax_are_left_to_those_who_use_them() -> None:
    env = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    hidden, *used = done.stdout.splitlines()
    assert hidden == "[]"
    expected = {"keras": "[[3.0, 3.0]]", "jax": "jax"}
    assert used == [line for package, line in expected.items() if importlib.util.find_spec(package)]
