"""The official load generator against a model of each format, over HTTP and gRPC.

The models are those of the contract of framework backends. A package of AOTInductor is left out: it would have to be
compiled, and runs as an archive of ``torch.export`` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from naiad.testing import RunningServer, serving, write_model
from support.framework_server import ONE
from support.model_control import load_error, unload
from support.perf_analyzer import REQUEST_COUNT, THROUGHPUT, found_tool, run, successes

pytestmark = pytest.mark.slow

REQUESTS = 100
# A first run may trace or compile a model.
RUN_S = 60
FRAMEWORKS = ("onnx", "torchscript", "torch_export", "torch_eager", "tensorflow", "openvino", "keras")
FORESTS = ("json", "ubjson", "legacy", "lightgbm", "treelite", "skops", "joblib")


@pytest.fixture(scope="module")
def tool() -> str:
    return found_tool()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("formats")
    (made / "models").mkdir()
    return made


@pytest.fixture(scope="module")
def formats(folder: Path) -> Iterator[RunningServer]:
    """A server that loads a model when its test begins."""
    arguments = ("--model-control-mode=explicit", "--backend-config=fil,allow-pickle=true")
    with serving(folder / "log", folder / "models", *arguments) as server:
        yield server
        assert "Traceback" not in server.log, server.log


@pytest.fixture(scope="module", params=[*FRAMEWORKS, *(f"fil_{name}" for name in FORESTS)])
def model(request: pytest.FixtureRequest, folder: Path, formats: RunningServer) -> Iterator[str]:
    """A loaded model of one format."""
    name = request.param
    (_write_forest if name.startswith("fil_") else _write_network)(folder / "models", name)
    assert load_error(formats, name) == ""
    yield name
    unload(formats, name)


def _write_network(repository: Path, name: str) -> None:
    # Skips where the framework is not installed.
    framework: Any = import_module(f"backends.frameworks.test_{name}").TestContract.framework
    path = write_model(repository, name) / "1" / framework.file
    signature = framework.network(path, 0, 8)
    text = f"{framework.config}\n{signature.text()}{ONE}"
    (repository / name / "config.pbtxt").write_text(text, encoding="utf-8")


def _write_forest(repository: Path, name: str) -> None:
    for package in ("treelite", "xgboost", "lightgbm", "sklearn", "skops"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    case = import_module("support.forest_formats").CASES[name.removeprefix("fil_")]
    folder = write_model(repository, name, f'backend: "fil"\n{case.more}\n{ONE}')
    case.write(folder / "1" / case.file)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_it_reports_a_throughput_and_no_error(tool: str, formats: RunningServer, model: str, protocol: str) -> None:
    before = successes(formats.statistics(model))
    url = formats.grpc_url if protocol == "grpc" else formats.url
    count = ("--request-count", str(REQUESTS), "--concurrency-range", "2", "-b", "2")
    printed = run([tool, "-m", model, "-u", url, "-i", protocol, *count], RUN_S)
    counted, throughput = REQUEST_COUNT.search(printed), THROUGHPUT.search(printed)
    assert counted and throughput, printed
    # It does not count a request that the end of its window cuts off; the server counts all.
    assert int(counted[1]) >= 0.9 * REQUESTS and float(throughput[1]) > 0, printed
    assert "error" not in printed.lower() and "failed" not in printed.lower(), printed
    after = formats.statistics(model)
    assert successes(after) - before >= REQUESTS
    assert after["inference_stats"]["fail"]["count"] == 0
