"""A server with a latency objective, as its operator sees it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http

from naiad.cli.explain import explain
from naiad.testing import RunningServer, serving, write_model
from support.config_texts import parameter
from support.served_models import tensor

TENSORS = f"input [ {tensor('X', 'TYPE_FP32', '1')} ] output [ {tensor('Y', 'TYPE_FP32', '1')} ]"
GROUP = "dynamic_batching { } instance_group [ { kind: KIND_CPU count: 1 } ]"
CONFIG = f'backend: "identity" max_batch_size: 4 {GROUP} {TENSORS}' + parameter("execute_delay_ms", 1)
REQUESTS = 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("tuned")
    write_model(folder / "models", "tuned", CONFIG)
    write_model(folder / "models", "fixed", CONFIG + parameter("slo", "off"))
    with serving(folder / "log", "--model-repository", folder / "models", "--slo=p99=5s,instances=2") as found:
        with tritonclient.http.InferenceServerClient(found.url) as client:
            for name in ("tuned", "fixed"):
                for _ in range(REQUESTS):
                    x = tritonclient.http.InferInput("X", [1, 1], "FP32")
                    x.set_data_from_numpy(np.ones((1, 1), np.float32))
                    client.infer(name, [x])
        yield found


def page(server: RunningServer) -> list[str]:
    with urllib.request.urlopen(f"http://{server.host}:{server.metrics}/metrics", timeout=20) as response:
        return [line for line in response.read().decode().splitlines() if not line.startswith("#")]


def test_the_metrics_have_the_objective_and_what_is_set(server: RunningServer) -> None:
    lines = page(server)
    assert [line for line in lines if line.startswith('naiad_slo_limit_seconds{model="tuned",version="1"} 5')]
    assert 'naiad_tuned_setting{model="tuned",setting="max_batch_size",version="1"} 4' in lines
    assert not [line for line in lines if line.startswith(("naiad_slo", "naiad_tun")) and '"fixed"' in line]
    # Its latencies are followed without the distributions that --metrics-config asks for.
    assert not [line for line in lines if "histogram" in line or "summary" in line]


def test_explain_says_what_is_set_and_why(server: RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(["tuned", "--url", server.url, "--field", "tuned"]) == 0
    text = capsys.readouterr().out
    assert "tuned.instances: 1  [slo p99=5s,instances=2; configured: 1]" in text
    assert 'tuned.reason: "as configured"  [configured]' in text
    assert explain(["fixed", "--url", server.url]) == 0
    assert "tuned." not in capsys.readouterr().out


def test_a_wrong_objective_is_refused_where_it_stands(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "wrong", CONFIG + parameter("slo", "p99=soon"))
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models", "--exit-on-error=false") as server:
        assert "parameter 'slo' of model 'wrong': expected 'p99=<time>'" in server.log
