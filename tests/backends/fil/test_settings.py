"""The output that the parameters of a forest choose, and configurations that contradict the forest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("treelite", reason="the extra fil is not installed")
pytest.importorskip("xgboost", reason="xgboost is not installed")

from support.forest_models import (
    FEATURES,
    NUMBER,
    TESTED,
    THREE,
    TWO,
    answer,
    completed,
    parameters,
    refusal,
    tensors,
    width_of,
    xgboost_model,
)


@pytest.fixture
def binary(tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """A binary classifier, and the probabilities of class 1 for the tested rows."""
    booster = xgboost_model("binary:logistic", TWO)
    booster.save_model(tmp_path / "xgboost.json")
    return tmp_path / "xgboost.json", booster.inplace_predict(TESTED)


@pytest.fixture
def several(tmp_path: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """A classifier of three classes, and the probabilities of each for the tested rows."""
    booster = xgboost_model("multi:softprob", THREE, num_class=3)
    booster.save_model(tmp_path / "xgboost.json")
    return tmp_path / "xgboost.json", booster.inplace_predict(TESTED)


@pytest.fixture
def regressor(tmp_path: Path) -> Path:
    """A model of numbers."""
    xgboost_model("reg:squarederror", NUMBER).save_model(tmp_path / "xgboost.json")
    return tmp_path / "xgboost.json"


@pytest.mark.parametrize("name", ["output_class", "is_classifier"])
def test_the_class_of_a_binary_classifier(binary: tuple[Path, Any], name: str) -> None:
    file, scores = binary
    assert width_of(file, **{name: "true"}) == 1
    for more, threshold in (({}, 0.5), ({"threshold": "0.3"}, 0.3), ({"threshold": "0.95"}, 0.95)):
        found = answer(file, tensors(FEATURES) + parameters(**{name: "true"}, **more))
        assert found.dtype == np.float32
        assert found.tolist() == [[float(score > threshold)] for score in scores]


def test_the_class_of_several(several: tuple[Path, Any]) -> None:
    file, scores = several
    assert width_of(file, output_class="true") == 1
    found = answer(file, tensors(FEATURES) + parameters(output_class="true"))
    assert found.tolist() == scores.argmax(axis=1, keepdims=True).tolist()


def test_probabilities_of_two_classes(binary: tuple[Path, Any]) -> None:
    file, scores = binary
    text = parameters(output_class="true", predict_proba="true")
    assert width_of(file, predict_proba="true") == 2
    found = answer(file, tensors(FEATURES, 2) + text)
    np.testing.assert_allclose(found, np.stack([1 - scores, scores], axis=1), atol=1e-6)
    alone = answer(file, tensors(FEATURES, 1) + text)
    np.testing.assert_allclose(alone[:, 0], scores, atol=1e-6)


def test_probabilities_of_several_classes(several: tuple[Path, Any]) -> None:
    file, scores = several
    assert width_of(file, predict_proba="true") == 3
    found = answer(file, tensors(FEATURES, 3) + parameters(predict_proba="true", output_class="true"))
    np.testing.assert_allclose(found, scores, atol=1e-6)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_do_not_change_results(several: tuple[Path, Any], threads: str) -> None:
    file, _ = several
    rows = np.tile(TESTED, (8, 1))
    assert np.array_equal(
        answer(file, tensors(FEATURES, 3) + parameters(threads=threads), rows),
        answer(file, tensors(FEATURES, 3), rows),
    )


def test_more_threads_than_there_are_become_fewer(several: tuple[Path, Any], caplog: pytest.LogCaptureFixture) -> None:
    file, _ = several
    rows = np.tile(TESTED, (8, 1))
    found = answer(file, tensors(FEATURES, 3) + parameters(threads="4096"), rows)
    assert np.array_equal(found, answer(file, tensors(FEATURES, 3), rows))
    assert "model 'm': parameter 'threads' is 4096, OpenMP allows" in caplog.text


def test_a_model_without_a_batch_dimension(binary: tuple[Path, Any]) -> None:
    file, scores = binary
    text = tensors(FEATURES, batch=0).replace("dims: [ ", "dims: [ -1, ")
    np.testing.assert_allclose(answer(file, text)[:, 0], scores, atol=1e-6)


def test_settings_for_gpus_are_taken(binary: tuple[Path, Any]) -> None:
    file, scores = binary
    text = parameters(
        storage_type="SPARSE8",
        algo="BATCH_TREE_REORG",
        blocks_per_sm="2",
        threads_per_tree="4",
        layout="layered",
        chunk_size="16",
        transfer_threshold="2",
        use_experimental_optimizations="true",
    )
    np.testing.assert_allclose(answer(file, tensors(FEATURES) + text)[:, 0], scores, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("storage_type", "TINY", 'expected one of "AUTO", "DENSE", "SPARSE", "SPARSE8"'),
        ("algo", "naive", 'expected one of "ALGO_AUTO", "NAIVE"'),
        ("layout", "sideways", 'expected one of "depth_first", "breadth_first", "layered"'),
        ("chunk_size", "many", "expected a whole number of at least 0"),
        ("model_type", "catboost", 'is "catboost", expected one of "xgboost_ubj", "xgboost_json"'),
        ("model_type", "lightgbm", 'is XGBoost JSON; write model_type: "xgboost_json"'),
        ("threads", "0", "expected a whole number of at least 1"),
        ("threshold", "high", "expected a number of at least 0"),
        ("predict_proba", "maybe", 'expected "true" or "false"'),
    ],
)
def test_values_that_do_not_fit(binary: tuple[Path, Any], name: str, value: str, words: str) -> None:
    text = refusal(binary[0], tensors(FEATURES) + parameters(**{name: value}))
    assert f"parameter '{name}'" in text and words in text


def test_two_names_of_one_parameter_that_differ(binary: tuple[Path, Any]) -> None:
    text = refusal(binary[0], tensors(FEATURES) + parameters(output_class="true", is_classifier="false"))
    assert "'output_class' is \"true\" and 'is_classifier', which means the same, is \"false\"" in text


def test_probabilities_of_a_model_without_classes(regressor: Path) -> None:
    text = refusal(regressor, tensors(FEATURES) + parameters(predict_proba="true"))
    assert "'predict_proba' is true, and the model (XGBoost JSON) is no classifier" in text


def test_tensors_that_are_not_the_models(several: tuple[Path, Any]) -> None:
    file, _ = several
    text = refusal(file, tensors(5, 2))
    assert "tensor 'input__0': the model expects 2 dimensions (shape [-1,4])" in text and "shape [-1,5])" in text
    assert "tensor 'output__0': the model expects 2 dimensions (shape [-1,3])" in text and "shape [-1,2])" in text
    assert "unexpected inference input 'rows'" in refusal(file, tensors(4, 3).replace("input__0", "rows"))


def test_shapley_values_are_refused_by_name(binary: tuple[Path, Any]) -> None:
    output = 'output { name: "treeshap_output" data_type: TYPE_FP32 dims: [ 5 ] }'
    words = "output 'treeshap_output' asks for Shapley values, which this version does not compute"
    assert words in refusal(binary[0], tensors(FEATURES) + output)
    with pytest.raises(Exception, match="Shapley"):
        completed(binary[0], output)


def test_groups_on_gpus_are_refused(binary: tuple[Path, Any]) -> None:
    text = refusal(binary[0], tensors(FEATURES) + "instance_group { kind: KIND_GPU count: 1 gpus: 0 }")
    assert "runs forests on the processor; write kind: KIND_CPU" in text
