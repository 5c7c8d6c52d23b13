"""The dashboards and alerts of deploy/monitoring, against a real Prometheus that scrapes a server under load."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from naiad.testing import serving
from naiad.testing.waiting import wait_until
from support.prometheus import Prometheus, needs_prometheus, promtool, running_prometheus
from support.served_models import SUM_AND_DIFFERENCE, identity, write_model
from support.traffic import Traffic

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
DASHBOARDS = MONITORING / "grafana" / "dashboards"
DATA_S = 60.0
# Machines with a GPU show these.
WITHOUT_DATA_HERE = ("gpus",)
VARIABLES = {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*", "$model": ".*", "$version": ".*"}


def dashboard(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DASHBOARDS / f"{name}.json").read_text())
    return found


def expressions(name: str) -> list[Any]:
    """A parameter for each query of a dashboard: its expression, named after its panel."""
    return [
        pytest.param(target["expr"], id=f"{name}: {panel['title']} {target['refId']}")
        for panel in dashboard(name)["panels"]
        for target in panel["targets"]
    ]


def names() -> list[str]:
    return sorted(path.stem for path in DASHBOARDS.glob("*.json"))


def shown() -> list[Any]:
    """The queries of all dashboards that have data on every machine."""
    return [query for name in names() if name not in WITHOUT_DATA_HERE for query in expressions(name)]


def alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def measured(expression: str) -> list[str]:
    """The parts of an alert's expression that Prometheus compares with a number."""
    compared = re.split(r"\band\b", " ".join(expression.split()))
    return [re.sub(r" (==|>|<|>=|<=) [0-9.]+$", "", part.strip()) for part in compared]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("monitoring")
    write_model(folder / "models", "echo", identity(dims="4"))
    # The memory of a model that a framework loads is measured.
    write_model(folder / "models", "sum", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    arguments = ("--allow-cpu-metrics=true", "--metrics-port=0", "--metrics-interval-ms=200")
    with serving(folder / "server.log", folder / "models", *arguments) as server:
        config = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(MONITORING / "alerts.yml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{server.metrics}"]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with running_prometheus(folder, folder / "prometheus.yml") as found, Traffic(server, "echo", http=1, grpc=0):
            yield found


def assert_data(prometheus: Prometheus, expression: str) -> None:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)

    def has_data() -> bool:
        return any(math.isfinite(float(sample["value"][1])) for sample in prometheus.query(expression))

    wait_until(has_data, DATA_S, f"{expression} has data")


@pytest.mark.slow
@needs_prometheus
@pytest.mark.parametrize(
    "expression", [e for name in names() if name not in WITHOUT_DATA_HERE for e in expressions(name)]
)
def test_a_panel_has_data(prometheus: Prometheus, expression: str) -> None:
    assert_data(prometheus, expression)


@pytest.mark.slow
@needs_prometheus
@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_looks_at_data(prometheus: Prometheus, alert: dict[str, Any]) -> None:
    for expression in measured(alert["expr"]):
        assert_data(prometheus, expression.replace("[5m]", "[10s]").replace("[15m]", "[10s]"))


@needs_prometheus
def test_the_expressions_of_a_gpu_are_ones(tmp_path: Path) -> None:
    """Prometheus reads them; a machine with a GPU has the data."""
    rules = [{"record": f"gpu:{number}", "expr": value.values[0]} for number, value in enumerate(expressions("gpus"))]
    for rule in rules:
        for variable, value in VARIABLES.items():
            rule["expr"] = rule["expr"].replace(variable, value)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "gpus", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


@needs_prometheus
def test_prometheus_takes_the_files() -> None:
    promtool("check", "config", MONITORING / "prometheus.yml")
    promtool("check", "rules", MONITORING / "alerts.yml")


@needs_prometheus
def test_alerts_fire_when_they_should_and_not_before() -> None:
    promtool("test", "rules", MONITORING / "alerts_test.yml")


def test_every_alert_is_tried() -> None:
    tried = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())
    fired = {case["alertname"] for test in tried["tests"] for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == {alert["alert"] for alert in alerts()}


# Grafana


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_dashboards", MONITORING / "grafana" / "make_dashboards.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_dashboards_are_what_the_script_writes() -> None:
    made = script()
    assert names() == sorted(made.DASHBOARDS)
    for name in names():
        assert dashboard(name) == made.dashboard(name), "run deploy/monitoring/grafana/make_dashboards.py"


@pytest.mark.parametrize("name", names())
def test_panels_lie_side_by_side(name: str) -> None:
    places = [panel["gridPos"] for panel in dashboard(name)["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in dashboard(name)["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", names())
def test_grafana_reads_a_dashboard(name: str) -> None:
    sdk = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed"
    )
    read = sdk.Dashboard.from_json(dashboard(name))
    assert read.uid == f"naiad-{name}"
    assert len(read.panels) == len(dashboard(name)["panels"])


def test_the_provisioned_data_source_is_the_dashboards_default() -> None:
    sources = yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert [source["uid"] for source in sources["datasources"]] == ["prometheus"]
    for name in names():
        variable = dashboard(name)["templating"]["list"][0]
        assert variable["current"]["value"] == "prometheus"
