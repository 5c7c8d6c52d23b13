"""The simulation of more cores agrees with what can be worked out by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from benchmarks.scaling import Costs, front_ends, one_process, replicas  # noqa: E402

COSTS = Costs(one=20, front=20, engine=8, model=4, replica=16)


def test_one_core_does_all_the_work_of_a_request_in_turn() -> None:
    assert one_process(COSTS, 1, 1).rate == pytest.approx(1e6 / 24, rel=0.02)
    found = front_ends(COSTS, 1, 1, 1)
    assert (found.rate, found.bottleneck) == (pytest.approx(1e6 / 32, rel=0.03), "cores")


def test_one_process_is_as_fast_as_its_loop_on_any_number_of_cores() -> None:
    found = one_process(COSTS, 16, 16)
    assert (found.rate, found.bottleneck) == (pytest.approx(1e6 / 20, rel=0.03), "loop")


def test_few_front_ends_are_the_limit_before_the_engine_is() -> None:
    found = front_ends(COSTS, 16, 2, 16)
    assert (found.rate, found.bottleneck) == (pytest.approx(2e6 / 20, rel=0.05), "front ends")


def test_the_loop_of_the_engine_is_the_last_limit() -> None:
    found = front_ends(COSTS, 64, 16, 64)
    assert (found.rate, found.bottleneck) == (pytest.approx(1e6 / 8, rel=0.1), "engine's loop")


def test_front_ends_that_run_the_model_are_limited_by_cores_alone() -> None:
    found = replicas(COSTS, 16, 16, 16)
    assert (found.rate, found.bottleneck) == (pytest.approx(16e6 / 20, rel=0.03), "cores")
    assert replicas(COSTS, 16, 4, 16).rate == pytest.approx(4e6 / 16, rel=0.05)


def test_the_script_reads_the_figures_of_the_bench(tmp_path: Path) -> None:
    names = (
        *("frontends_one_loop_cpu", "frontends_front_cpu", "frontends_engine_loop_cpu", "frontends_model_cpu"),
        "frontends_replica_loop_cpu",
    )
    figures = [{"name": name, "value": 10.0} for name in names]
    file = tmp_path / "figures.json"
    file.write_text(json.dumps({"cases": [{"case": "frontends", "figures": figures}]}))
    script = [sys.executable, str(ROOT / "scripts" / "scale_model")]
    printed = subprocess.run([*script, str(file)], capture_output=True, text=True, check=True).stdout.splitlines()
    assert printed[0] == "costs in us/request: one 10.0, front 10.0, engine 10.0, model 10.0, replica 10.0"
    cores = ["1", "2", "4", "8", "16", "32", "64"]
    assert [line.split()[0] for line in printed[2:]] == [count for count in cores for _ in range(2)]
    missing = subprocess.run([*script, "--one", "1"], capture_output=True, text=True, check=False)
    assert (missing.returncode, "no cost for front" in missing.stderr) == (2, True)
