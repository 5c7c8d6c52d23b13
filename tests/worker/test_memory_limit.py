"""The limit of a process's memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import Child, Frame, Request, bare_worker, write_execute

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
MEGABYTE = 1 << 20
FILLS = """
size = int(requests[0].inputs()[0].as_numpy().flat[0])
data = np.ones(size, np.uint8)
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data[:3])])]
"""


def start(child: Child, model: Path, megabytes: int, mode: str = "serve") -> Frame:
    """Load a model under a limit; what the child answers."""
    child.more_orders = {"memory_bytes": megabytes * MEGABYTE}
    return child.start(model, mode=mode)


def test_what_is_too_much_is_an_error_and_the_rest_goes_on(tmp_path: Path) -> None:
    model = write_execute(tmp_path, FILLS)
    with bare_worker() as child:
        assert start(child, model, 600).kind == p.READY
        message = child.run_failing([Request({"IN": np.array([900 * MEGABYTE])})])
        assert "MemoryError" in message
        assert "(memory-limit-mb is 600)" in message
        (response,) = child.run([Request({"IN": np.array([MEGABYTE])})])
        assert response.outputs["OUT"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", ["serve", "complete"])
def test_a_limit_below_what_python_needs_says_so(tmp_path: Path, mode: str) -> None:
    model = write_execute(tmp_path, FILLS)
    with bare_worker() as child:
        answer = start(child, model, 5, mode)
        assert answer.kind == p.FAILED
        assert "MB are in use before the model is loaded (memory-limit-mb is 5)" in answer.json["message"]
