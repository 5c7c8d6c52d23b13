"""Recipes, compose files, the chart and the unit of deploy/: what they start, and that their tools read them."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from naiad.options.command_line import parse
from naiad.options.server import ServerOptions
from naiad.version import __version__

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "naiad"
HELM = os.environ.get("NAIAD_HELM", "") or shutil.which("helm") or ""
needs_helm = pytest.mark.skipif(not HELM, reason="there is no helm here; NAIAD_HELM may name one")


def compose(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / path).read_text())
    return found


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=60)


def rendered(*settings: str) -> list[dict[str, Any]]:
    """The manifests of the chart with settings."""
    done = run(HELM, "template", "trial", CHART, *(word for each in settings for word in ("--set", each)))
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def test_compose_has_the_shape_of_the_tutorials() -> None:
    services = compose("compose.yaml")["services"]
    assert services["triton"]["ports"] == ["8000:8000", "8001:8001", "8002:8002"]
    assert services["triton"]["command"] == ["tritonserver", "--model-repository=/models"]
    assert services["triton"]["volumes"] == ["${MODEL_REPOSITORY:-./model_repository}:/models:ro"]
    assert services["perf_analyzer"]["command"] == ["sleep", "infinity"]


@pytest.mark.parametrize("path", ["compose.yaml", "monitoring/compose.yaml"])
def test_every_file_that_compose_names_is_there(path: str) -> None:
    folder = (DEPLOY / path).parent
    for service in compose(path)["services"].values():
        if build := service.get("build"):
            assert (folder / build["context"] / build["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (folder / source).exists()


@pytest.mark.parametrize("name", ["server", "sdk"])
def test_a_recipe_copies_what_there_is(name: str) -> None:
    text = (DEPLOY / "image" / f"{name}.Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert copied
    for source in " ".join(copied).split():
        assert (DEPLOY.parent / source).exists()


def test_the_health_checks_ask_for_the_same() -> None:
    text = (DEPLOY / "image" / "server.Containerfile").read_text()
    asked = json.loads(re.findall(r"^    CMD (\[.*\])$", text, re.MULTILINE)[0])
    task = json.loads((DEPLOY / "ecs" / "task.json").read_text())
    assert task["containerDefinitions"][0]["healthCheck"]["command"] == ["CMD", *asked]


def test_the_chart_and_the_task_name_the_version_of_the_server() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__
    task = json.loads((DEPLOY / "ecs" / "task.json").read_text())
    assert task["containerDefinitions"][0]["image"].endswith(f":{__version__}")


def test_amazon_takes_the_task() -> None:
    session = pytest.importorskip("botocore.session", reason="botocore is not installed: moto brings it")
    validate = importlib.import_module("botocore.validate").ParamValidator().validate
    register = session.get_session().get_service_model("ecs").operation_model("RegisterTaskDefinition")
    task = json.loads((DEPLOY / "ecs" / "task.json").read_text())
    assert validate(task, register.input_shape).generate_report() == ""
    task["containerDefinitions"][0]["stopTime"] = 60
    assert "stopTime" in validate(task, register.input_shape).generate_report()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "naiad.service").read_text()
    unit = tmp_path / "naiad.service"
    # systemd looks whether the program is there.
    unit.write_text(text.replace("/opt/naiad/bin/naiad", "/bin/true"))
    done = run("systemd-analyze", "verify", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stop_lasts_longer_than_the_requests_in_flight_may() -> None:
    longest = ServerOptions().exit_timeout_secs
    text = (DEPLOY / "systemd" / "naiad.service").read_text()
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)[0]) > longest
    assert int(compose("compose.yaml")["services"]["triton"]["stop_grace_period"].removesuffix("s")) > longest


def test_the_runtime_of_kserve_asks_the_ports_that_its_server_has() -> None:
    spec = yaml.safe_load((DEPLOY / "kserve" / "serving-runtime.yaml").read_text())["spec"]
    (container,) = spec["containers"]
    command, *arguments = container["args"][1:]
    options = parse(arguments, {})
    assert (command, options.model_repository) == ("serve", (Path("/mnt/models"),))
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in probes] == ["/v2/health/ready", "/v2/health/ready", "/v2/health/live"]
    # KServe's services lead to these ports.
    assert {probe["port"] for probe in probes} == {options.http_port} == {8080}
    assert options.grpc_port == 9000
    assert int(spec["annotations"]["prometheus.kserve.io/port"]) == options.metrics_port
    # KServe leaves a pod Kubernetes' 30 seconds to stop.
    assert options.shutdown_delay + options.exit_timeout_secs < 30
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


@needs_helm
def test_the_chart_is_rendered() -> None:
    kinds = {manifest["kind"]: manifest for manifest in rendered()}
    assert set(kinds) == {"Deployment", "Service"}
    pod = kinds["Deployment"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 45
    assert pod["containers"][0]["args"] == [
        "--model-repository=/models",
        "--shutdown-delay=5",
        "--exit-timeout-secs=30",
    ]
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"


@needs_helm
def test_the_chart_has_an_autoscaler_a_monitor_and_a_job_on_request() -> None:
    found = rendered("autoscaling.queue.enabled=true", "podMonitor.enabled=true", "perf.enabled=true")
    kinds = {manifest["kind"]: manifest for manifest in found}
    assert set(kinds) == {"Deployment", "Service", "ScaledObject", "PodMonitor", "Job"}
    assert "replicas" not in kinds["Deployment"]["spec"]
    assert "nv_inference_queue_duration_us" in kinds["ScaledObject"]["spec"]["triggers"][0]["metadata"]["query"]
    assert "HorizontalPodAutoscaler" in {manifest["kind"] for manifest in rendered("autoscaling.cpu.enabled=true")}


@needs_helm
def test_the_chart_refuses_two_autoscalers() -> None:
    both = ("--set", "autoscaling.cpu.enabled=true", "--set", "autoscaling.queue.enabled=true")
    done = run(HELM, "template", "trial", CHART, *both)
    assert done.returncode != 0
    assert "two autoscalers would fight over one deployment" in done.stderr


@needs_helm
def test_helm_has_nothing_against_the_chart() -> None:
    done = run(HELM, "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout
