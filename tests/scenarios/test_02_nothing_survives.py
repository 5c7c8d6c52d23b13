"""Many large requests, then the server is killed: nothing of it stays. While it serves, what it uses is bounded."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from naiad.testing import server_environment, wait_until
from support.python_environments import make_venv, pack
from support.python_models import DOUBLES, Client, client_of, write_python_model

REQUESTS = 120
LARGE = np.ones((1, 2_000_000), np.float32)
SLOW = DOUBLES.replace("answers = []", "answers = []; time.sleep(0.05)")


def processes(client: Client) -> list[psutil.Process]:
    return [psutil.Process(client.server.process.pid), *client.children()]


def memory_bytes(client: Client) -> int:
    """What the server and its processes have in memory; what they share counts once for each that maps it."""
    return sum(p.memory_info().rss for p in processes(client))


def descriptors(client: Client) -> list[int]:
    return [p.num_fds() for p in processes(client)]


def ask(client: Client, count: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: client.infer_array("doubles", LARGE), range(count)):
            assert found[0, -1] == 2


# What the whole machine has in /dev/shm is compared.
@pytest.mark.serial
@pytest.mark.slow
def test_nothing_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    pack(make_venv(tmp_path / "venv"), tmp_path / "env.tar.gz")
    packed = f'parameters: {{ key: "EXECUTION_ENV_PATH" value: {{ string_value: "{tmp_path}/env.tar.gz" }} }}'
    write_python_model(tmp_path / "models", "doubles", SLOW, f"max_batch_size: 4 {packed}", count=2)
    shared = set(os.listdir("/dev/shm"))
    options = {"env": {**server_environment(), "TMPDIR": str(temporary)}}
    with client_of(tmp_path / "models", tmp_path / "log", **options) as client:
        ask(client, REQUESTS // 8)
        memory, files = memory_bytes(client), descriptors(client)
        ask(client, REQUESTS)
        assert memory_bytes(client) < memory + 100e6
        assert all(now <= before + 4 for now, before in zip(descriptors(client), files, strict=True))
        with ThreadPoolExecutor(4) as pool:
            # Killed while tensors are on their way.
            asked = [pool.submit(client.infer_array, "doubles", LARGE) for _ in range(8)]
            wait_until(lambda: any(one.done() for one in asked), 10, "some are answered")
            children = client.children()
            client.server.signal(signal.SIGKILL)
            gone, alive = psutil.wait_procs(children, 5)
            assert (len(gone), alive) == (2, [])
            assert any(one.exception() is not None for one in asked)
    assert set(os.listdir("/dev/shm")) <= shared
    left = {path.name for path in temporary.iterdir()}
    assert all(name.startswith("naiad-environments-") for name in left)
    # The next start clears up what only a running program can.
    with client_of(tmp_path / "models", tmp_path / "log", **options) as client:
        ask(client, 4)
        assert not left & {path.name for path in temporary.iterdir()}
    assert list(temporary.iterdir()) == []
