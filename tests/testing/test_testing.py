"""The public helpers for tests, used as a user's own tests would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from naiad.testing import ServerStateError, run_to_end, serving, wait_until, write_model

IDENTITY = """
    backend: "identity"
    input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ 2 ] } ]
    output [ { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 2 ] } ]
"""
REQUEST = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [3, 4]}]}


def test_a_model_is_written_and_served(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "m", IDENTITY)
    with serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        response = server.infer("m", REQUEST)
        assert (response.status, response.type) == (200, "application/json")
        assert response.json()["outputs"][0]["data"] == [3, 4]
        assert server.statistics("m")["inference_count"] == 1
        assert "not found" in server.get("/v2/models/other").error
        assert server.memory_bytes() > 1 << 20
    assert server.process.returncode == 0


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    code, log = run_to_end(tmp_path / "log", "--model-repository", tmp_path / "nothing")
    assert code != 0
    assert "nothing" in log


@pytest.mark.slow
def test_a_server_that_is_killed_fails_the_block(tmp_path: Path) -> None:
    with (
        pytest.raises(ServerStateError, match="ended with"),
        serving(tmp_path / "log", "--model-repository", tmp_path / "nothing"),
    ):
        pass


def test_files_of_a_version(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"\x00")
    files = {"model.py": "x = 1\n", "more/weights": tmp_path / "weights", "raw": b"\x01"}
    folder = write_model(tmp_path / "models", "m", versions=(1, 3), files=files)
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        f"{version}/{file}" for version in (1, 3) for file in ("model.py", "more/weights", "raw")
    ]
    assert (folder / "3" / "more" / "weights").read_bytes() == b"\x00"
    with pytest.raises(FileExistsError):
        write_model(tmp_path / "models", "m")


def test_a_wait_is_bounded_and_names_the_state() -> None:
    with pytest.raises(ServerStateError, match=r"not within 0\.02 s: pigs fly"):
        wait_until(lambda: False, 0.02, "pigs fly")


def test_the_helpers_need_no_test_framework() -> None:
    import subprocess

    code = "import sys, naiad.testing; print([m for m in ('pytest', 'onnx', 'tritonclient') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
