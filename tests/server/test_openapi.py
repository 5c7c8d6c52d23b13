"""``/openapi.json``: the document holds what the server does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from naiad.frontends.http.v2.openapi import document
from naiad.frontends.http.v2.router import ROUTES
from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model

RUN_S = 150


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, "same", identity("TYPE_FP32", "-1"))
    with serving(folder.parent / "openapi.log", folder, "--model-control-mode=explicit", "--load-model=*") as running:
        yield running


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = document(ROUTES)["paths"]
    return [(method, path, found) for path, methods in paths.items() for method, found in methods.items()]


def test_it_is_served_as_json(server: RunningServer) -> None:
    answer = server.get("/openapi.json")
    assert (answer.status, answer.type) == (200, "application/json")
    assert answer.json() == json.loads(json.dumps(document(ROUTES)))
    assert server.post("/openapi.json", {}).status == 405


def test_every_served_route_is_in_it() -> None:
    served = [route for route in ROUTES if route.make is not None]
    listed = {(method.upper(), re.sub(r"\{\w+\}", "1", path)) for method, path, _ in operations()}
    for route in served:
        assert any(method == route.method and route.pattern.fullmatch(path) for method, path in listed), route
    for method, path in listed:
        assert any(method == route.method and route.pattern.fullmatch(path) for route in served), path


def test_operations_are_told_apart_and_described() -> None:
    identifiers = [found["operationId"] for *_, found in operations()]
    assert len(set(identifiers)) == len(identifiers)
    assert all(found["summary"] and found["tags"][0] for *_, found in operations())


def test_references_lead_somewhere() -> None:
    found = document(ROUTES)
    for name in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(found)):
        assert name in found["components"]["schemas"]


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("/v2", "ServerMetadata"),
        ("/v2/models/same", "ModelMetadata"),
        ("/v2/models/same/config", "ModelConfig"),
        ("/v2/models/stats", "Statistics"),
        ("/v2/models/same/stats", "Statistics"),
    ],
)
def test_answers_have_what_their_schema_requires(server: RunningServer, path: str, schema: str) -> None:
    found = server.get(path).json()
    assert set(document(ROUTES)["components"]["schemas"][schema]["required"]) <= set(found)


@pytest.mark.slow
@pytest.mark.timeout(RUN_S + 60)
def test_the_server_does_what_the_document_says(server: RunningServer) -> None:
    """The document is valid; requests made from it, right and wrong ones, get answers that it has."""
    python = Path(sys.prefix) / "openapi" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there: scripts/test makes it")
    script = Path(__file__).parents[1] / "support" / "openapi_check.py"
    command = [python, "-I", script, f"http://{server.url}"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert json.loads(finished.stdout) == {"operations": len(operations()), "failures": []}
    assert server.get("/v2/health/live").status == 200
    assert "Traceback" not in server.log
