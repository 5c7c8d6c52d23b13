"""A load on a server whose only core is busy."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from naiad.testing import serving
from support.served_models import identity, numbers, write_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot bind processes to cores"),
]
LIMIT_S = 30.0
# The first request waits until there is a second one.
PAIRS = "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 600000000 }"


@contextmanager
def spinning(core: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that uses all of a core."""
    process = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_load_waits_for_a_core_while_a_request_is_under_way(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    write_model(tmp_path / "models", "pairs", identity(max_batch_size=2, extra=PAIRS))
    write_model(tmp_path / "models", "other", identity())
    write_model(tmp_path / "models", "demanded", identity())
    options = ("--model-control-mode=explicit", "--load-model=pairs", "--model-load-wait-secs=3600")
    # The load that waits must not keep the only permit.
    options += ("--load-on-demand-secs=60", "--model-load-thread-count=1")
    with (
        serving(
            tmp_path / "log", tmp_path / "models", *options, preexec_fn=lambda: os.sched_setaffinity(0, {core})
        ) as server,
        ThreadPoolExecutor(3) as callers,
    ):
        # Without requests a load begins at once, as busy as the machine may be.
        with spinning(core):
            assert server.post("/v2/repository/models/other/load", {}).status == 200
        assert "waits at most" not in server.log
        request = numbers([1, 2], (1, 2))
        first = callers.submit(server.post, "/v2/models/pairs/infer", request)
        server.wait_pending("pairs", 1)
        server.post("/v2/repository/models/other/unload", {})
        with spinning(core):
            load = callers.submit(server.post, "/v2/repository/models/other/load", {})
            server.wait_for("the load of 'other' version 1 waits at most 3600 s")
            assert not load.done()
            # A request waits for this load.
            assert server.post("/v2/models/demanded/infer", numbers([3])).status == 200
            assert server.post("/v2/models/pairs/infer", request).status == 200
            assert first.result(LIMIT_S).status == 200
            # No request is under way any more, and the core is as busy as before.
            assert load.result(LIMIT_S).status == 200
