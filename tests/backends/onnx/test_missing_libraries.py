"""A provider that ONNX Runtime passes over, since a library is missing. No machine here has CUDA: the processor's own
provider is hidden until the libraries of pip's packages are loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

from naiad.backends.onnx.session import create_session, read_settings  # noqa: E402
from naiad.errors import ModelLoadError  # noqa: E402
from support import onnx_models  # noqa: E402
from support.backend_contract import context  # noqa: E402

PROVIDER = [("CPUExecutionProvider", dict[str, str]())]


@pytest.fixture(name="loads")
def _loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the loads of libraries, the first of which shows the provider."""
    loads: list[str] = []
    real = onnxruntime.InferenceSession.get_providers
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda s: real(s) if "found" in loads else [])
    return loads


def session(tmp_path: Path) -> Any:
    file = onnx_models.double(tmp_path / "model.onnx")
    settings = read_settings(context(file), {}, None, 1)
    return create_session("m", file, settings, PROVIDER)


def test_libraries_of_pip_s_packages_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[str]
) -> None:
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: loads.append("found"), raising=False)
    assert session(tmp_path).get_providers() == ["CPUExecutionProvider"]
    assert loads == ["found"]


@pytest.mark.parametrize("is_old", [False, True])
def test_without_them_the_error_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: list[str], is_old: bool
) -> None:
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: loads.append("nothing"), raising=False)
    if is_old:
        monkeypatch.delattr(onnxruntime, "preload_dlls")
    with pytest.raises(
        ModelLoadError, match=r"CPUExecutionProvider and cannot use it here.*onnxruntime-gpu\[cuda,cudnn"
    ):
        session(tmp_path)
    assert loads == ([] if is_old else ["nothing"])
