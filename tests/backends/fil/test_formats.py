"""Forests of every format give what their own libraries compute."""

from __future__ import annotations

import base64
import json
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="the extra fil is not installed")
xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
pytest.importorskip("lightgbm", reason="lightgbm is not installed")

from support.forest_models import (  # noqa: E402
    FEATURES,
    LEGACY,
    LEGACY_ROWS,
    LEGACY_SCORES,
    NUMBER,
    ROWS,
    TESTED,
    THREE,
    TWO,
    answer,
    completed,
    lightgbm_model,
    parameters,
    refusal,
    tensors,
    width_of,
    xgboost_model,
)

OBJECTIVES = [
    ("binary:logistic", TWO, 1, {}),
    ("reg:squarederror", NUMBER, 1, {}),
    ("multi:softprob", THREE, 3, {"num_class": 3}),
    ("count:poisson", THREE, 1, {}),
    ("rank:pairwise", TWO, 1, {}),
    ("reg:squarederror", ROWS[:, :2], 2, {}),
]


def assert_equal(found: np.ndarray[Any, Any], expected: Any) -> None:
    """Equal to a millionth."""
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.asarray(expected).reshape(len(found), -1), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["xgboost.json", "xgboost.ubj"])
@pytest.mark.parametrize(("objective", "target", "width", "more"), OBJECTIVES)
def test_xgboost(tmp_path: Path, name: str, objective: str, target: Any, width: int, more: dict[str, Any]) -> None:
    booster = xgboost_model(objective, target, **more)
    booster.save_model(tmp_path / name)
    assert width_of(tmp_path / name) == width
    assert_equal(answer(tmp_path / name, tensors(FEATURES, width)), booster.inplace_predict(TESTED))


@pytest.mark.parametrize(
    ("objective", "target", "width", "more"),
    [
        ("binary", TWO, 1, {}),
        ("regression", NUMBER, 1, {}),
        ("multiclass", THREE, 3, {"num_class": 3}),
        ("multiclassova", THREE, 3, {"num_class": 3}),
    ],
)
def test_lightgbm(tmp_path: Path, objective: str, target: Any, width: int, more: dict[str, Any]) -> None:
    booster = lightgbm_model(objective, target, **more)
    booster.save_model(tmp_path / "model.txt")
    assert width_of(tmp_path / "model.txt") == width
    assert_equal(answer(tmp_path / "model.txt", tensors(FEATURES, width)), booster.predict(TESTED))


def test_missing_values_go_where_the_library_sends_them(tmp_path: Path) -> None:
    rows = TESTED.copy()
    rows[::2, 0] = np.nan
    rows[1::3, 1] = np.nan
    booster = xgboost_model("binary:logistic", TWO)
    booster.save_model(tmp_path / "xgboost.json")
    assert_equal(answer(tmp_path / "xgboost.json", tensors(FEATURES), rows), booster.inplace_predict(rows))
    other = lightgbm_model("binary", TWO)
    other.save_model(tmp_path / "model.txt")
    assert_equal(answer(tmp_path / "model.txt", tensors(FEATURES), rows), other.predict(rows))


def on_thresholds(file: Path) -> np.ndarray[Any, Any]:
    """A row for each split of a forest, with its threshold where it looks."""
    load = treelite.frontend.load_xgboost_model if file.suffix == ".json" else treelite.frontend.load_lightgbm_model
    forest = load(file)
    rows = []
    for number in range(forest.num_tree):
        tree = forest.get_tree_accessor(number)
        inner = tree.get_field("cleft") >= 0
        places, thresholds = (tree.get_field(name)[inner] for name in ("split_index", "threshold"))
        for place, threshold in zip(places, thresholds, strict=True):
            rows.append(np.where(np.arange(FEATURES) == place, threshold, 0))
    return np.array(rows, np.float32)


def test_rows_that_are_equal_to_a_threshold_go_where_the_library_sends_them(tmp_path: Path) -> None:
    """To the right in XGBoost, to the left in LightGBM."""
    booster, other = xgboost_model("reg:squarederror", NUMBER), lightgbm_model("regression", NUMBER)
    booster.save_model(tmp_path / "xgboost.json")
    other.save_model(tmp_path / "model.txt")
    for file, predict in (("xgboost.json", booster.inplace_predict), ("model.txt", other.predict)):
        rows = on_thresholds(tmp_path / file)
        assert_equal(answer(tmp_path / file, tensors(FEATURES), rows), predict(rows))


@pytest.mark.parametrize("depth", [0, 1, 9, 14])
def test_trees_of_any_depth(tmp_path: Path, depth: int) -> None:
    """Above ten levels treelite finds the leaves."""
    more = {"max_depth": depth or 1, "min_child_weight": 0, **({"gamma": 1e9} if depth == 0 else {})}
    noise = np.random.default_rng(depth).standard_normal(len(ROWS))
    booster = xgboost_model("reg:squarederror", noise, trees=12, **more)
    booster.save_model(tmp_path / "xgboost.json")
    for rows in (TESTED[:1], TESTED[:15], TESTED[:17], np.tile(TESTED, (60, 1))):
        expected = booster.inplace_predict(rows)
        assert_equal(answer(tmp_path / "xgboost.json", tensors(FEATURES, batch=4096), rows), expected)


@pytest.mark.slow
def test_the_legacy_format_of_xgboost(tmp_path: Path) -> None:
    file = tmp_path / "xgboost.model"
    file.write_bytes(zlib.decompress(base64.b85decode(LEGACY)))
    for text in ("", parameters(model_type="xgboost")):
        assert_equal(answer(file, tensors(3) + text, LEGACY_ROWS), LEGACY_SCORES)


def test_many_trees_give_what_xgboost_does_bit_by_bit(tmp_path: Path) -> None:
    """Looked up by leaves and added in its order; treelite's own sum differs in the last bits."""
    booster = xgboost_model("reg:squarederror", NUMBER + 1000, trees=60)
    booster.save_model(tmp_path / "xgboost.json")
    expected = booster.inplace_predict(TESTED)
    assert answer(tmp_path / "xgboost.json", tensors(FEATURES)).ravel().tobytes() == expected.tobytes()
    own = treelite.gtil.predict(treelite.frontend.load_xgboost_model(tmp_path / "xgboost.json"), TESTED, nthread=1)
    assert own.ravel().tobytes() != expected.tobytes()


def test_a_model_file_of_a_newer_xgboost_is_ubjson(tmp_path: Path) -> None:
    booster = xgboost_model("binary:logistic", TWO)
    booster.save_model(tmp_path / "xgboost.ubj")
    file = (tmp_path / "xgboost.ubj").rename(tmp_path / "xgboost.model")
    assert_equal(answer(file, tensors(FEATURES)), booster.inplace_predict(TESTED))
    text = refusal(file, tensors(FEATURES) + parameters(model_type="xgboost"))
    assert 'is "xgboost" (XGBoost\'s legacy binary format), and' in text
    assert 'xgboost.model is XGBoost UBJSON; write model_type: "xgboost_ubj"' in text


@pytest.mark.slow
def test_a_checkpoint_of_treelite(tmp_path: Path) -> None:
    booster = xgboost_model("multi:softprob", THREE, num_class=3)
    booster.save_model(tmp_path / "xgboost.json")
    treelite.frontend.load_xgboost_model(tmp_path / "xgboost.json").serialize(tmp_path / "checkpoint.tl")
    for text in ("", parameters(model_type="treelite_checkpoint")):
        found = answer(tmp_path / "checkpoint.tl", tensors(FEATURES, 3) + text)
        assert_equal(found, booster.inplace_predict(TESTED))


def test_the_type_of_the_model_chooses_among_the_usual_files(tmp_path: Path) -> None:
    xgboost_model("reg:squarederror", NUMBER).save_model(tmp_path / "xgboost.json")
    other = lightgbm_model("regression", NUMBER)
    other.save_model(tmp_path / "model.txt")
    found = answer(tmp_path / "xgboost.json", tensors(FEATURES) + parameters(model_type="lightgbm"))
    assert_equal(found, other.predict(TESTED))


def test_a_file_that_is_called_model_with_the_ending_of_its_format(tmp_path: Path) -> None:
    booster = xgboost_model("reg:squarederror", NUMBER)
    for number, (kind, ending) in enumerate((("xgboost_json", "json"), ("xgboost_ubj", "ubj"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        booster.save_model(folder / f"model.{ending}")
        found = answer(folder / "xgboost.json", tensors(FEATURES) + parameters(model_type=kind))
        assert_equal(found, booster.inplace_predict(TESTED))


@pytest.mark.parametrize("size", ["cut", "garbage", "empty", "none"])
@pytest.mark.parametrize("name", ["xgboost.json", "xgboost.ubj", "model.txt", "checkpoint.tl", "xgboost.model"])
def test_files_that_are_no_models(tmp_path: Path, name: str, size: str) -> None:
    file = tmp_path / name
    if name == "model.txt":
        lightgbm_model("binary", TWO).save_model(file)
    elif name == "xgboost.model":
        file.write_bytes(zlib.decompress(base64.b85decode(LEGACY)))
    else:
        xgboost_model("binary:logistic", TWO).save_model(tmp_path / "xgboost.json")
        xgboost_model("binary:logistic", TWO).save_model(tmp_path / "xgboost.ubj")
        treelite.frontend.load_xgboost_model(tmp_path / "xgboost.json").serialize(tmp_path / "checkpoint.tl")
    whole = file.read_bytes()
    file.write_bytes({"cut": whole[: len(whole) // 2], "garbage": b"this is no model\n" * 40}.get(size, b""))
    if size == "none":
        file.unlink()
    words = {"empty": "is empty; save or copy it again", "none": f"there is no file {file}"}
    damaged = "is cut short" if (name, size) == ("model.txt", "cut") else f"treelite cannot read {file} as "
    assert words.get(size, damaged) in refusal(file, tensors(FEATURES))
    assert str(file) in refusal(file, tensors(FEATURES))


@pytest.mark.parametrize(
    ("name", "number", "words"),
    [
        ("num_leaves", "99999999", "tree 0: num_leaves is 99999999, and leaf_value has"),
        ("left_child", "0", "tree 0: left_child and right_child make no tree of"),
        ("left_child", "4000", "tree 0: left_child and right_child make no tree of"),
        ("decision_type", "3", "tree 0: a split by the category"),
        ("right_child", "x", "tree 0: ValueError: "),
    ],
)
def test_numbers_of_lightgbm_that_lead_nowhere(tmp_path: Path, name: str, number: str, words: str) -> None:
    """Treelite would read beyond its arrays, ask for all memory, or never come to a leaf."""
    file = tmp_path / "model.txt"
    lightgbm_model("binary", TWO).save_model(file)
    file.write_text(re.sub(rf"\n{name}=\S+", f"\n{name}={number}", file.read_text(), count=1))
    assert f"treelite cannot read {file} as LightGBM text: {words}" in refusal(file, tensors(FEATURES))


def test_a_split_of_xgboost_by_a_feature_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "xgboost.json"
    xgboost_model("binary:logistic", TWO).save_model(file)
    written = json.loads(file.read_text())
    written["learner"]["gradient_booster"]["model"]["trees"][0]["split_indices"][0] = 4000
    file.write_text(json.dumps(written))
    assert f"it has tree 0: a split beyond {FEATURES} features" in refusal(file, tensors(FEATURES))


@pytest.mark.parametrize("name", ["xgboost.json", "xgboost.ubj"])
def test_a_linear_model_of_xgboost_is_no_forest(tmp_path: Path, name: str) -> None:
    data = xgboost.DMatrix(ROWS, NUMBER)
    xgboost.train({"booster": "gblinear", "nthread": 1}, data, 2).save_model(tmp_path / name)
    assert "its booster is gblinear, a linear model without trees" in refusal(tmp_path / name, tensors(FEATURES))


def test_an_objective_that_is_not_the_library_s(tmp_path: Path) -> None:
    file = tmp_path / "xgboost.json"
    xgboost_model("reg:squarederror", NUMBER).save_model(file)
    file.write_text(file.read_text().replace("reg:squarederror", "my:objective"))
    text = refusal(file, tensors(FEATURES))
    assert f"my:objective; this is treelite {treelite.__version__}, which knows" in text and "damaged" not in text


def test_an_encoder_of_categories(tmp_path: Path) -> None:
    file = tmp_path / "xgboost.json"
    xgboost_model("reg:squarederror", NUMBER).save_model(file)
    written = json.loads(file.read_text())
    none = {"offsets": [], "values": []}
    cats = {"enc": [{"type": 15, "values": [0, 1]}, none, none, none], "feature_segments": [0, 2, 2, 2, 2]}
    written["learner"]["gradient_booster"]["model"]["cats"] = {**cats, "sorted_idx": [0, 1]}
    file.write_text(json.dumps(written))
    text = refusal(file, tensors(FEATURES))
    assert "train the model on the numbers of the categories, with feature_types" in text and "damaged" not in text


def test_an_unknown_field_names_the_parameter_that_passes_over_it(tmp_path: Path) -> None:
    file = tmp_path / "xgboost.json"
    booster = xgboost_model("reg:squarederror", NUMBER)
    booster.save_model(file)
    written = json.loads(file.read_text())
    written["learner"]["team"] = {"name": "a"}
    file.write_text(json.dumps(written))
    assert "or set xgboost_allow_unknown_field" in refusal(file, tensors(FEATURES))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", '.*Encountered unknown key "team"')
        found = answer(file, tensors(FEATURES) + parameters(xgboost_allow_unknown_field="true"))
    assert_equal(found, booster.inplace_predict(TESTED))


def test_a_checkpoint_of_another_treelite_names_this_one(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.tl"
    treelite.frontend.from_xgboost(xgboost_model("reg:squarederror", NUMBER)).serialize(file)
    file.write_bytes((99).to_bytes(4, "little") + file.read_bytes()[4:])
    text = refusal(file, tensors(FEATURES))
    assert "a treelite checkpoint: Cannot load model from a different major Treelite version" in text
    assert f"this is treelite {treelite.__version__}; write the checkpoint with this version" in text


def test_a_file_of_an_unknown_format(tmp_path: Path) -> None:
    (tmp_path / "forest.bin").write_bytes(b"what is this")
    text = refusal(tmp_path / "forest.bin", tensors(FEATURES))
    assert "is in no format that is known" in text and "xgboost_ubj, xgboost_json" in text


def test_a_completed_configuration(tmp_path: Path) -> None:
    xgboost_model("binary:logistic", TWO).save_model(tmp_path / "xgboost.json")
    found = completed(tmp_path / "xgboost.json")
    assert found.max_batch_size == 1024 and found.HasField("dynamic_batching")
    assert [(t.name, list(t.dims)) for t in (*found.input, *found.output)] == [("input__0", [4]), ("output__0", [1])]
    settings = {"default-max-batch-size": "16"}
    assert completed(tmp_path / "xgboost.json", **settings).max_batch_size == 16
