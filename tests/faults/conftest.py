"""What several files of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from naiad.testing import RunningServer


@pytest.fixture(scope="module")
def stub(server: RunningServer) -> Iterator[Any]:
    """The inference service of the server of a file."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)
