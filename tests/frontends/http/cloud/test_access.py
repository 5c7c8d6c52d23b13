"""API keys, restricted APIs and pages of other sites at the ports of cloud platforms, and front-end processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.testing import HttpResponse, serving
from support.api_keys import hashed
from support.cloud_ports import EXPLICIT, HEALTH, PREDICT, ROUTES, SAGEMAKER, VERTEX_AI, environment
from support.served_models import identity, numbers, write_model
from support.server_port import ServerPort, loaded, server_port

REDIRECT = "X-Vertex-Ai-Triton-Redirect"
Ports = tuple[ServerPort, ServerPort]
FEW = f"--api-key=few infer {hashed('few')} rate=0.001 burst=2"
KEYS = tuple(f"--api-key={name} {name} {hashed(name)}" for name in ("infer", "manage", "observe"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ml")
    write_model(folder / "one", "same", identity())
    write_model(folder / "models" / "abc", "model", identity())
    return folder


def both(root: Path, log: Path, *options: object) -> Iterator[Ports]:
    """The ports of both platforms on one server."""
    variables = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "same", "SAGEMAKER_MODELS_DIRECTORY": str(root / "models")}
    everything = (root / "one", EXPLICIT, "--load-model=same", *SAGEMAKER, *VERTEX_AI, *options)
    with serving(log, *everything, env=environment(ROUTES | variables)) as running:
        yield server_port(running, "Sagemaker"), server_port(running, "Vertex AI")
        assert "handler failed" not in running.log


@pytest.fixture(scope="module")
def guarded(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    yield from both(root, tmp_path_factory.mktemp("log") / "log", *KEYS, FEW)


@pytest.fixture(scope="module")
def restricted(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    rules = (
        "--http-restricted-api=model-repository,statistics,metadata:Admin=s",
        "--http-restricted-api=inference:I=t",
    )
    yield from both(root, tmp_path_factory.mktemp("log") / "log", *rules)


def key(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def load(port: ServerPort, root: Path, headers: dict[str, str]) -> HttpResponse:
    return port.post("/models", {"model_name": "abc", "url": f"{root}/models/abc/model"}, headers)


class TestKeys:
    def test_health_needs_none(self, guarded: Ports) -> None:
        sagemaker, vertex = guarded
        assert sagemaker.get("/ping").status == 200
        assert vertex.get(HEALTH).status == 200

    def test_inference_needs_one(self, guarded: Ports) -> None:
        sagemaker, vertex = guarded
        for port, path in ((sagemaker, "/invocations"), (vertex, PREDICT)):
            for _ in range(2):
                answer = port.post(path, numbers([1]))
                assert answer.status == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert port.post(path, numbers([1]), key("wrong")).status == 401
                assert port.post(path, numbers([1]), key("observe")).status == 403
                assert loaded(port.post(path, numbers([1]), key("infer")))["outputs"][0]["data"] == [1]

    def test_both_ports_count_for_the_limit_of_a_key(self, guarded: Ports) -> None:
        sagemaker, vertex = guarded
        assert sagemaker.post("/invocations", numbers([1]), key("few")).status == 200
        assert vertex.post(PREDICT, numbers([1]), key("few")).status == 200
        for port, path in ((sagemaker, "/invocations"), (vertex, PREDICT)):
            answer = port.post(path, numbers([1]), key("few"))
            assert (answer.status, int(answer.headers["retry-after"]) > 0) == (429, True)

    def test_models_of_sagemaker_need_the_scope_for_changes(self, guarded: Ports, root: Path) -> None:
        port, _ = guarded
        assert load(port, root, {}).status == 401
        assert load(port, root, key("infer")).status == 403
        assert load(port, root, key("manage")).status == 200
        for method, path in (("GET", "/models"), ("GET", "/models/abc"), ("DELETE", "/models/abc")):
            assert port.request(method, path).status == 401
            assert port.request(method, path, None, key("infer")).status == 403
        assert port.post("/models/abc/invoke", numbers([2])).status == 401
        assert port.post("/models/abc/invoke", numbers([2]), key("manage")).status == 403
        assert port.post("/models/abc/invoke", numbers([2]), key("infer")).status == 200
        # A key for inference cannot unload by another path.
        assert port.request("DELETE", "/models/abc/invoke", None, key("infer")).status == 405
        assert port.request("DELETE", "/models/abc", None, key("manage")).status == 200

    @pytest.mark.parametrize(
        ("target", "scope"),
        [("metrics", "observe"), ("v2/models/stats", "observe"), ("v2/repository/index", "manage"), ("v2", "infer")],
    )
    def test_redirects_need_the_scope_of_their_target(self, guarded: Ports, target: str, scope: str) -> None:
        _, port = guarded
        assert port.post(PREDICT, b"", {REDIRECT: target}).status == 401
        assert port.post(PREDICT, b"", {REDIRECT: target, **key(scope)}).status == 200
        for other in {"infer", "observe", "manage"} - {scope}:
            answer = port.post(PREDICT, b"", {REDIRECT: target, **key(other)})
            assert answer.status == (200 if target == "v2" else 403)

    def test_reasons_of_failed_loads_are_for_who_may_read_them(self, guarded: Ports) -> None:
        for port, path in zip(guarded, ("/ping", HEALTH), strict=True):
            assert port.get(f"{path}?verbose=true").body == b""


class TestRestrictedApis:
    def test_sagemaker(self, restricted: Ports, root: Path) -> None:
        port, _ = restricted
        assert port.get("/ping").status == 200
        for method, path in (("GET", "/models"), ("GET", "/models/x"), ("DELETE", "/models/x")):
            answer = port.request(method, path)
            assert (answer.status, answer.error) == (403, "This API is restricted, expecting header 'Admin'")
            assert port.request(method, path, None, {"Admin": "no"}).status == 403
        assert load(port, root, {}).status == 403
        assert load(port, root, {"Admin": "s"}).status == 200
        assert port.post("/models/abc/invoke", numbers([1])).status == 403
        assert port.post("/models/abc/invoke", numbers([1]), {"I": "t"}).status == 200
        assert port.post("/invocations", numbers([1])).status == 403
        assert port.post("/invocations", numbers([1]), {"I": "t"}).status == 200
        assert port.request("DELETE", "/models/abc", None, {"Admin": "s"}).status == 200

    def test_vertex_ai(self, restricted: Ports) -> None:
        _, port = restricted
        assert port.post(PREDICT, numbers([1])).status == 403
        assert port.post(PREDICT, numbers([1]), {"I": "t"}).status == 200
        for target in ("v2", "v2/repository/index", "v2/models/same/stats"):
            assert port.post(PREDICT, b"", {REDIRECT: target}).status == 403
            assert port.post(PREDICT, b"", {REDIRECT: target, "Admin": "s"}).status == 200
        # The metrics port has no restrictions in the reference, and neither has its page here.
        assert port.post(PREDICT, b"", {REDIRECT: "metrics"}).status == 200


def test_pages_of_other_sites_load_nothing(restricted: Ports, root: Path) -> None:
    answer = load(restricted[0], root, {"Admin": "s", "Origin": "https://elsewhere.example"})
    assert (answer.status, "may not steer the server" in answer.error) == (403, True)


@pytest.mark.slow
def test_front_end_processes_leave_these_ports_to_the_engine(root: Path, tmp_path: Path) -> None:
    ports = both(root, tmp_path / "log", "--frontend-processes", 2, "--model-namespacing=true")
    sagemaker, vertex = next(ports)
    server = sagemaker.server
    assert load(sagemaker, root, {}).status == 200
    for port, path in ((sagemaker, "/invocations"), (sagemaker, "/models/abc/invoke"), (vertex, PREDICT)):
        assert loaded(port.post(path, numbers([4])))["outputs"][0]["data"] == [4]
    # The front ends of the HTTP port know the model, too, and statistics count what they ran.
    assert loaded(server.infer("same", numbers([5])))["outputs"][0]["data"] == [5]
    found = loaded(vertex.post(PREDICT, b"", {REDIRECT: "v2/models/same/stats"}))
    assert found["model_stats"][0]["inference_count"] == 3
    assert b"nv_inference_request_success" in vertex.post(PREDICT, b"", {REDIRECT: "metrics"}).body
    assert sagemaker.request("DELETE", "/models/abc").status == 200
    assert next(ports, None) is None
