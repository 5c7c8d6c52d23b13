"""The contract of framework backends for files of Keras."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("keras") is None or find_spec("torch") is None:
    pytest.skip("the extra keras, or torch for it, is not installed", allow_module_level=True)

from backends.contract import FrameworkContract, InstanceContract
from support.keras_contract import keras_framework

# A process imports the framework for seconds; the contract of ONNX Runtime and TorchScript runs with --fast too.
pytestmark = pytest.mark.slow


class TestContract(FrameworkContract):
    framework = keras_framework()


class TestInstance(InstanceContract):
    framework = TestContract.framework
