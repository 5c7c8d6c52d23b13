"""A large model is loaded again and again: the other model's callers are answered all the while.

How far its p99 moves while 1 GB is loaded is printed by ``scripts/bench load_beside``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.testing import serving, wait_until
from support.bench_parts import part
from support.served_models import identity, write_model
from support.traffic import Traffic

LOADS = 3
ROWS = 1 << 22
"""Of 64 bytes each: 256 MiB."""


# It is counted what is answered during a load.
@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.parametrize("way", ["thread", "process"])
def test_the_other_model_goes_on(tmp_path: Path, way: str) -> None:
    write_model(tmp_path / "models", "small", identity())
    execution = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'
    part("models").add_table(tmp_path / "models", "large", ROWS, execution)
    options = ("--model-control-mode=explicit", "--load-model=small")
    with serving(tmp_path / "log", tmp_path / "models", *options) as server:
        with Traffic(server, "small", http=1, grpc=1) as traffic:
            wait_until(lambda: traffic.answered > 10, 10, "callers are answered")
            for _ in range(LOADS):
                before = traffic.answered
                assert server.post("/v2/repository/models/large/load", {}).status == 200
                assert traffic.answered > before + 10, "answered while the other was loaded"
                assert server.get("/v2/models/large/ready").status == 200
                assert server.post("/v2/repository/models/large/unload", {}).status == 200
        assert traffic.failures == []
        assert server.statistics("small")["inference_stats"]["fail"]["count"] == 0
