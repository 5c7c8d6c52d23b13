"""The contract of framework backends for TorchScript models on a GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.gpu_machine import TOLERANCE, TOLERANCE_REASON, lacking

if reason := lacking("torch"):
    pytest.skip(reason, allow_module_level=True)

import torch

if not torch.cuda.is_available():
    pytest.skip("the installed torch finds no GPU", allow_module_level=True)

from backends.contract import FrameworkContract
from backends.frameworks.test_torchscript import TestContract as OnProcessor
from support import torch_models
from support.framework import Signature, Tensor


class ChecksIndex(torch.nn.Module):
    """Looks up a value, and checks the index itself: the GPU would be lost to the process (``test_lost_by_torch``)."""

    def forward(self, INDEX: torch.Tensor) -> torch.Tensor:
        assert bool((INDEX < 4).all()), "the index is too large"
        return 10.0 + INDEX.float()


def failing(path: Path) -> Signature:
    torch_models.save(path, ChecksIndex())
    return Signature((Tensor("INDEX", "INT64", (1,)),), (Tensor("VALUE", "FP32", (1,)),))


class TestContract(FrameworkContract):
    framework = replace(
        OnProcessor.framework,
        kind="KIND_GPU",
        tolerance=TOLERANCE,
        tolerance_reason=TOLERANCE_REASON,
        failing=failing,
        failure="torch: .*the index is too large",
        # The threads of the processor have nothing to do.
        pool_parameter="",
    )
