"""The field's experiments of ``scripts/bench``: their networks, and their rows beside the published ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.bench_parts import bench, part


@pytest.mark.parametrize(
    ("name", "shapes"), [("inception", {"scores": (1000,)}), ("east", {"score": (1, 32, 32), "geometry": (5, 32, 32)})]
)
def test_the_networks_batch(name: str, shapes: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    networks = part("field.networks")
    network = getattr(networks, name)()
    assert network.outputs == shapes
    files = tmp_path / "one.onnx", tmp_path / "two.onnx"
    network.save(files[0])
    getattr(networks, name)().save(files[1])
    assert files[0].read_bytes() == files[1].read_bytes()
    images = np.random.default_rng(1).random((3, *network.shape), np.float32)
    session = onnxruntime.InferenceSession(files[0])
    together = dict(zip(shapes, session.run(list(shapes), {"image": images}), strict=True))
    alone = dict(zip(shapes, session.run(list(shapes), {"image": images[1:2]}), strict=True))
    for output, shape in shapes.items():
        assert together[output].shape == (3, *shape)
        assert np.isfinite(together[output]).all()
        assert np.allclose(together[output][1:2], alone[output], rtol=1e-3, atol=1e-4)
        assert not np.allclose(together[output][0], together[output][1], rtol=1e-2)


def lines(row: Any, first: Any) -> dict[str, Any]:
    """The figures of a row with 300 infer/s whose first row has 100."""
    experiment = part("field.experiment")
    found = [experiment.Observed(rate, 5.0, 40.0, 2.5) for rate in (290.0, 300.0, 900.0)]
    base = [experiment.Observed(100.0, 9.0, 80.0, 1.0)]
    return {figure.name: figure for figure in experiment.figures("field_x", row, found, first, base)}


def test_a_row_stands_beside_the_published_one() -> None:
    make = part("field.experiment").ExperimentRow
    found = lines(make("batched_4", "m", 4, 1000, 7.5), make("plain", "m", 1, 250))
    assert found["field_x_batched_4"].value == 300
    assert found["field_x_batched_4"].note == "3.00 of the first row; published 1000, 4.00 of its first"
    assert found["field_x_batched_4_cpu"].value == 0.5
    assert found["field_x_batched_4_cpu"].note == "40 us/inference, batches of 2.5"
    assert (found["field_x_batched_4_p95"].value, found["field_x_batched_4_p95"].note) == (5.0, "published 7.5")


def test_what_was_not_published_is_not_invented() -> None:
    make = part("field.experiment").ExperimentRow
    found = lines(make("own", "m", 16), make("plain", "m", 1, 250))
    assert found["field_x_own"].note == "3.00 of the first row; not published"
    assert found["field_x_own_p95"].note == "callers: 16"


@pytest.mark.slow
def test_quick_runs(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    result = tmp_path / "figures.json"
    finished = bench("--quick", "--only", "field_east,json_b64", "--json", str(result))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    east, encoded = json.loads(result.read_text())["cases"]
    assert [case["outcome"] for case in (east, encoded)] == ["measured", "measured"]
    values = {figure["name"]: figure["value"] for figure in (*east["figures"], *encoded["figures"])}
    assert values["field_east_off_1_cpu"] == 1
    assert values["field_east_on_2"] > 0
    # The bound is 5 and is kept by far; a run of a second on a busy machine should see a part of it.
    assert values["json_b64_1_ratio"] > 2
