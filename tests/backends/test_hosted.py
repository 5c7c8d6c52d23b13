"""Backends in processes of their own, and in one that they share: they do what they do in a thread."""

from __future__ import annotations

import pytest

from backends import test_identity, test_onnxruntime
from support.framework_contract import HostedContract, shared_processes

__all__ = ["shared_processes"]


class TestIdentityInAProcess(HostedContract, test_identity.TestContract):
    way = "process"
    # One process for each.
    wires = ("BOOL", "BF16", "BYTES")


class TestIdentityInASharedProcess(HostedContract, test_identity.TestContract):
    way = "shared"


@pytest.mark.slow
class TestOnnxInAProcess(HostedContract, test_onnxruntime.TestContract):
    way = "process"
    wires = ("FP32", "BF16", "BYTES")


class TestOnnxInASharedProcess(HostedContract, test_onnxruntime.TestContract):
    way = "shared"
