"""What a user's own function says about a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.convert.errors import StepError
from naiad.convert.samples import write_samples
from naiad.convert.steps.verify import verify

PROGRAM = """
import numpy as np

def double(x):
    return {"y": 2 * x}

def fair(found, wanted):
    return 0.5

def words(found, wanted):
    return "good"

def nothing(found, wanted):
    return None

def longer(x):
    return {"y": np.concatenate([x, x])}

def same_kind(found, wanted):
    return found[0]["y"].shape[1] == wanted[0]["y"].shape[1]

def raising(found, wanted):
    raise RuntimeError("no labels here")
"""
TENSOR: dict[str, Any] = {"dtype": "float32", "shape": [-1, 2]}
SIGNATURE = {
    "inputs": [{"name": "x", **TENSOR}],
    "outputs": [{"name": "y", **TENSOR}],
    "is_batching": True,
    "by_name": True,
}


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Verifies a function against itself, as a step does in its own folder, and lets the user's function judge."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    rows = np.ones((1, 2), np.float32)
    write_samples([{"x": rows}], tmp_path / "samples")
    write_samples([{"y": 2 * rows}], tmp_path / "reference")
    monkeypatch.chdir(tmp_path)

    def judge(function: str, minimum: float | None, model: str = "double") -> dict[str, Any]:
        made = {"file": "", "callable": f"{program}:{model}", "inputs": ["x"], "outputs": ["y"]}
        asked = {"metric": "", "minimum": minimum, "function": f"{program}:{function}" if function else ""}
        return verify("python", made, SIGNATURE, str(tmp_path), "fp32", **asked)

    return judge


def test_a_number_is_compared_with_the_minimum(judged: Any) -> None:
    assert judged("fair", 0.5)["is_good"]
    found = judged("fair", 0.6)
    assert not found["is_good"] and "returns 0.5, and --min is 0.6" in found["reason"]


@pytest.mark.parametrize(("function", "shown"), [("words", "'good'"), ("nothing", "None")])
def test_what_is_neither_a_bool_nor_a_number_is_refused(judged: Any, function: str, shown: str) -> None:
    with pytest.raises(StepError, match=f"{function} returns {shown}, which is neither a bool nor a number"):
        judged(function, 0.5)


def test_a_function_that_raises_is_named(judged: Any) -> None:
    with pytest.raises(StepError, match="raising raises RuntimeError: no labels here") as caught:
        judged("raising", None)
    assert "lists of dictionaries of arrays" in caught.value.advice


def test_outputs_of_other_shapes_are_kept_and_left_to_the_users_function(judged: Any) -> None:
    with pytest.raises(StepError, match="has the shape"):
        judged("", None, "longer")
    with np.load("worst.npz") as worst:
        assert worst["source:y"].shape == (1, 2) and worst["converted:y"].shape == (2, 2)
    found = judged("same_kind", None, "longer")
    assert found["is_good"] and "cannot be compared: output 'y' for sample 0" in found["reason"]
