"""The reference's model-analyzer beside ``naiad analyze``, on the same space of the same server."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from naiad.testing import RunningServer, server_environment, serving
from support.perf_analyzer import found_tool
from support.served_models import identity, write_model

RUN_S = 300
SPACE: dict[str, Any] = {
    "parameters": {"concurrency": 32},
    "model_config_parameters": {
        "max_batch_size": [4, 16],
        "instance_group": [{"kind": "KIND_CPU", "count": [1, 2]}],
        "dynamic_batching": {},
    },
}
"""Four configurations of a model that takes as long for one row as for a batch: the greatest of them is the best."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    write_model(tmp_path / "models", "sleeps", identity(dims="2", max_batch_size=2, delay_ms=10))
    options = ("--model-repository", tmp_path / "models", "--model-control-mode=explicit")
    with serving(tmp_path / "log", *options) as running:
        yield running


def best_of(command: list[str], server: RunningServer, folder: Path, **keys: Any) -> tuple[str, str]:
    """The instances and the batch size with the most throughput of a run in remote mode."""
    folder.mkdir()
    values = {
        "model_repository": str(folder.parent / "models"),
        "profile_models": {"sleeps": SPACE},
        "run_config_search_disable": True,
        "triton_launch_mode": "remote",
        "triton_http_endpoint": server.url,
        "triton_grpc_endpoint": server.grpc_url,
        "triton_metrics_url": f"http://{server.host}:{server.metrics}/metrics",
        "checkpoint_directory": str(folder / "checkpoints"),
        "export_path": str(folder),
        "duration_seconds": 1,
        **keys,
    }
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    line = [*command, "profile", "-f", str(file)]
    done = subprocess.run(
        line, cwd=folder, env=server_environment(), capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with (folder / "results" / "metrics-model-inference.csv").open() as table:
        rows = list(csv.DictReader(table))
    best = max(rows, key=lambda row: float(row["Throughput (infer/sec)"]))
    return best["Instance Group"], best["Max Batch Size"]


@pytest.mark.slow
def test_both_choose_the_same(server: RunningServer, tmp_path: Path) -> None:
    """``NAIAD_MODEL_ANALYZER`` names the program; it measures with the reference's perf_analyzer."""
    program = os.environ.get("NAIAD_MODEL_ANALYZER")
    if not program:
        pytest.skip("NAIAD_MODEL_ANALYZER does not name the program model-analyzer")
    ours = best_of([sys.executable, "-m", "naiad", "analyze"], server, tmp_path / "ours")
    theirs = best_of(
        [program],
        server,
        tmp_path / "theirs",
        dcgm_disable=True,
        perf_analyzer_path=found_tool(),
        # With windows as they are it measures each configuration for minutes on a busy machine.
        perf_analyzer_flags={"measurement-interval": 1000, "stability-percentage": 50},
        output_model_repository_path=str(tmp_path / "theirs" / "models"),
        skip_detailed_reports=True,
    )
    assert ours == theirs == ("2:CPU", "16")
