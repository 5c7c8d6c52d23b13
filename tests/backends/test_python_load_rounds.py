"""A Python model that comes and goes two hundred times leaves nothing behind."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest

from naiad.testing import server_environment, serving, wait_until
from support.python_models import DOUBLES, HEAD, Client, write_python_model

ROUNDS = 200
WARM_ROUNDS = 50
MIB = 1 << 20
TENSOR = {"data_type": "TYPE_FP32", "dims": [-1]}
CONFIG = {"backend": "python", "input": [{"name": "X", **TENSOR}], "output": [{"name": "Y", **TENSOR}]}
FILES = {
    "config": json.dumps({**CONFIG, "max_batch_size": 8}),
    "file:1/model.py": base64.b64encode((HEAD + DOUBLES).encode()).decode(),
}


class Held(NamedTuple):
    """What a server process holds."""

    children: int
    files: int
    memory_files: int
    threads: int
    temporary: int


def held(server: psutil.Process, temporary: Path) -> Held:
    links = []
    for entry in os.listdir(f"/proc/{server.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{server.pid}/fd/{entry}"))
        except FileNotFoundError:
            continue
    memory = sum("memfd" in link for link in links)
    return Held(len(server.children()), len(links), memory, server.num_threads(), len(list(temporary.iterdir())))


def rss_mib(server: psutil.Process) -> float:
    return float(server.memory_info().rss / MIB)


@pytest.mark.slow
def test_two_hundred_rounds_leave_nothing_behind(tmp_path: Path) -> None:
    repository, temporary = tmp_path / "models", tmp_path / "temporary"
    temporary.mkdir()
    write_python_model(repository, "doubles", DOUBLES)
    row = np.ones((1, 100_000), np.float32)
    environ = {**server_environment(), "TMPDIR": str(temporary)}
    arguments = ("--model-repository", repository, "--model-control-mode=explicit")
    with serving(tmp_path / "log", *arguments, env=environ) as server:
        client = Client(server)
        process = psutil.Process(server.process.pid)

        def post(verb: str, parameters: dict[str, Any]) -> None:
            answer = server.post(f"/v2/repository/models/doubles/{verb}", {"parameters": parameters})
            assert answer.status == 200, answer.body

        def go_round(number: int) -> None:
            post("load", FILES if number % 5 == 0 else {})
            assert client.infer_array("doubles", row)[0, 0] == 2
            post("unload", {"unload_dependents": number % 2 == 0})

        def is_gone() -> bool:
            rows = server.index()
            return rows == [{"name": "doubles", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}]

        memory = 0.0
        for number in range(WARM_ROUNDS):
            go_round(number)
            # The most: what the pools hold comes and goes with the seconds.
            memory = max(memory, rss_mib(process))
        wait_until(is_gone, 10, "is unloaded")
        before = held(process, temporary)
        for number in range(WARM_ROUNDS, ROUNDS):
            go_round(number)
        wait_until(is_gone, 10, "is unloaded")
        client.grpc.close()
        assert before.children == before.memory_files == before.temporary == 0
        wait_until(
            lambda: all(a <= b for a, b in zip(held(process, temporary), before, strict=True)), 5, f"holds {before}"
        )
        grown = rss_mib(process) - memory
        print(f"{grown:+.1f} MiB in {ROUNDS - WARM_ROUNDS} rounds, at most {memory:.0f} MiB in the first {WARM_ROUNDS}")
        assert grown < 4
