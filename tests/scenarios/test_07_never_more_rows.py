"""A client's batch of 32 with max_batch_size 32, among other requests: never 33 rows in a batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from naiad.testing import serving
from support.served_models import identity, numbers, write_model

MOST = 32
BATCHING = "dynamic_batching { max_queue_delay_microseconds: 3000 }"


def test_never_more_rows_than_the_model_takes(tmp_path: Path) -> None:
    config = identity(max_batch_size=MOST, delay_ms=2, extra=BATCHING)
    write_model(tmp_path / "models", "same", config)
    sizes = [MOST, 1, 1, MOST, 31, 1, 2, MOST, 16, 17] * 6
    with serving(tmp_path / "log", tmp_path / "models") as server, ThreadPoolExecutor(16) as pool:

        def ask(rows: int) -> bool:
            answer = server.infer("same", numbers(range(rows), [rows, 1]))
            return bool(answer.json()["outputs"][0]["data"] == list(range(rows)))

        assert all(pool.map(ask, sizes))
        refused = server.infer("same", numbers(range(MOST + 1), [MOST + 1, 1]))
        assert refused.status == 400
        assert f"batch-size must be <= {MOST}" in refused.error
        found = server.statistics("same")
    assert found["inference_count"] == sum(sizes)
    batches = {part["batch_size"] for part in found["batch_stats"]}
    assert max(batches) == MOST
