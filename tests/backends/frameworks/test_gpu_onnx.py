"""The contract of framework backends for ONNX models on a GPU. It was never run yet (docs/gpu.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.gpu_machine import TOLERANCE, TOLERANCE_REASON, lacking

if reason := lacking("onnxruntime"):
    pytest.skip(reason, allow_module_level=True)

import onnxruntime

if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
    pytest.skip("the installed onnxruntime is not onnxruntime-gpu", allow_module_level=True)

from backends.contract import FrameworkContract
from backends.frameworks.test_onnx import TestContract as OnProcessor


class TestContract(FrameworkContract):
    framework = replace(OnProcessor.framework, kind="KIND_GPU", tolerance=TOLERANCE, tolerance_reason=TOLERANCE_REASON)
