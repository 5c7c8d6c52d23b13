"""Libraries of custom operators (``model_operations.op_library_filename``)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

from naiad.testing import serving
from support import onnx_models
from support.driver_libraries import compile_library, needs_compiler

# ONNX Runtime calls this function for every session; the library notes the calls beside itself.
LIBRARY = """
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *notes = fopen("NOTES", "a"); fputs("registered\\n", notes); fclose(notes); return 0; }
"""
PROCESS = 'parameters { key: "execution" value { string_value: "process" } }'


def write_operators(folder: Path) -> tuple[Path, Path]:
    """A library, and the file of its notes."""
    notes = folder / "notes"
    return compile_library(folder, "operators.so", LIBRARY.replace("NOTES", str(notes))) / "operators.so", notes


def write_model(folder: Path, library: Path, more: str = "") -> None:
    """A model of the repository ``folder``."""
    onnx_models.double(folder / "m" / "1" / "model.onnx")
    text = f'backend: "onnxruntime" {more} model_operations {{ op_library_filename: "{library}" }}'
    (folder / "m" / "config.pbtxt").write_text(text)


@needs_compiler
@pytest.mark.parametrize("more", ["", "max_batch_size: 8", PROCESS], ids=["auto-complete", "batches", "process"])
def test_every_session_registers_them(tmp_path: Path, more: str) -> None:
    library, notes = write_operators(tmp_path / "library")
    write_model(tmp_path / "models", library, more)
    request = {"inputs": [{"name": "X", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}
    with serving(tmp_path / "log", tmp_path / "models") as server:
        answer = server.infer("m", request)
    assert answer.json()["outputs"][0]["data"] == [2, 4, 6]
    assert "registered" in notes.read_text()


def test_a_library_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_model(tmp_path / "models", tmp_path / "none.so")
    with serving(tmp_path / "log", tmp_path / "models", "--model-control-mode=explicit") as server:
        error = server.post("/v2/repository/models/m/load", {}).error
    assert f"cannot load the operators of '{tmp_path}/none.so' (model_operations.op_library_filename)" in error
    assert "none.so: cannot open shared object file" in error and "onnx.checker" not in error
