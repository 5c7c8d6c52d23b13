"""TorchScript models in a shared process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from backends import test_pytorch
from support.framework_contract import HostedContract, shared_processes

__all__ = ["shared_processes"]


class TestTorchInASharedProcess(HostedContract, test_pytorch.TestContract):
    way = "shared"
