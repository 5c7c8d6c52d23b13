"""The contract of framework backends for TorchScript models on a GPU. It was never run yet (docs/gpu.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.gpu_machine import TOLERANCE, TOLERANCE_REASON, lacking

if reason := lacking("torch"):
    pytest.skip(reason, allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("the installed torch finds no GPU", allow_module_level=True)

from backends.contract import FrameworkContract
from backends.frameworks.test_torchscript import TestContract as OnProcessor


class TestContract(FrameworkContract):
    framework = replace(OnProcessor.framework, kind="KIND_GPU", tolerance=TOLERANCE, tolerance_reason=TOLERANCE_REASON)
