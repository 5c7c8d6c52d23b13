"""@grpc/grpc-js in node: gRPC in JavaScript, with messages from Naiad's own proto files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import naiad
from interop.calls import CALL_S, wait_until_idle
from naiad.testing import RunningServer

PROTOS = Path(naiad.__file__).parent / "protos"
PEER = Path(__file__).parent / "node" / "peer.js"
MODULES = Path(sys.prefix) / "interop-node" / "node_modules"
"""Where scripts/test installs the packages, beside Python's own."""


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if not found:
        pytest.skip("node is not installed")
    if not (MODULES / "@grpc" / "grpc-js").is_dir():
        pytest.skip(f"@grpc/grpc-js is not installed in {MODULES}; scripts/test does that")
    return found


def play(node: str, server: RunningServer, step: str, model: str = "vector") -> Any:
    """Let the peer do one step of its script; what it found."""
    finished = subprocess.run(
        [node, str(PEER), str(PROTOS), server.grpc_url, step, model],
        env=os.environ | {"NODE_PATH": str(MODULES)},
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


FOUND = {
    "unary": {"live": True, "name": "vector", "inputs": 1, "id": "seven", "values": [1.5, -2, 3]},
    "health": {"status": "SERVING"},
    "contents": {"values": [0.5, 4]},
    "many": {"right": 1000},
    "large": {"size": 5_000_000, "right": True},
    "error": {"code": "NOT_FOUND", "details": "Request for unknown model: 'nöpe \u2603' is not found"},
    "stream": {
        "code": "OK",
        "ordered": True,
        "right": 200,
        "errors": ["Request for unknown model: 'nope' is not found"],
    },
    "cancel_stream": {"code": "CANCELLED", "details": "Cancelled on client"},
}


@pytest.mark.parametrize("step", FOUND)
def test_what_it_finds(node: str, server: RunningServer, step: str) -> None:
    assert play(node, server, step) == FOUND[step]


@pytest.mark.slow
def test_compression_both_ways(node: str, compressing: RunningServer) -> None:
    assert play(node, compressing, "compressed") == {"size": 100_000, "right": True}


@pytest.mark.slow
def test_a_deadline(node: str, server: RunningServer, slow: str) -> None:
    assert play(node, server, "deadline", slow) == {"code": "DEADLINE_EXCEEDED"}
    wait_until_idle(server, slow, ran=1)


@pytest.mark.slow
def test_cancelling(node: str, server: RunningServer, slow: str) -> None:
    assert play(node, server, "cancel", slow) == {"code": "CANCELLED", "details": "Cancelled on client"}
    wait_until_idle(server, slow, ran=1)
