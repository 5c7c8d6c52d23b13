"""Models of scikit-learn: forests, pipelines and others, in files of skops and in pickles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("treelite", reason="the extra fil is not installed")
pytest.importorskip("sklearn", reason="the extra sklearn is not installed")
skops_io = pytest.importorskip("skops.io", reason="the extra sklearn is not installed")

import joblib  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from support.forest_models import (  # noqa: E402
    FEATURES,
    NUMBER,
    ROWS,
    TESTED,
    THREE,
    TWO,
    answer,
    parameters,
    refusal,
    tensors,
    width_of,
)
from support.mutual_imports import run_beside_packages  # noqa: E402

CLASSIFIERS = [
    RandomForestClassifier(10, max_depth=4, random_state=0),
    ExtraTreesClassifier(10, max_depth=4, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    make_pipeline(StandardScaler(), RandomForestClassifier(10, max_depth=4, random_state=0)),
    make_pipeline(StandardScaler(), LogisticRegression()),
]
REGRESSORS = [
    RandomForestRegressor(10, max_depth=4, random_state=0),
    HistGradientBoostingRegressor(max_iter=5, random_state=0),
]
ALLOWED = {"allow-pickle": "true"}


def saved(folder: Path, estimator: Any) -> Path:
    """The file of a model in the format of skops."""
    skops_io.dump(estimator, folder / "model.skops")
    return folder / "model.skops"


@pytest.mark.parametrize("target", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=lambda e: type(e[-1]).__name__ if hasattr(e, "steps") else "")
def test_classifiers(tmp_path: Path, estimator: Any, target: Any) -> None:
    estimator.fit(ROWS, target)
    file = tmp_path / "model.joblib"
    joblib.dump(estimator, file)
    classes = int(target.max()) + 1
    proba = answer(file, tensors(FEATURES, classes) + parameters(predict_proba="true"), **ALLOWED)
    np.testing.assert_allclose(proba, estimator.predict_proba(TESTED), atol=1e-6)
    found = answer(file, tensors(FEATURES) + parameters(output_class="true"), **ALLOWED)
    assert found[:, 0].tolist() == estimator.predict(TESTED).tolist()


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda e: type(e).__name__)
def test_regressors_in_files_of_skops(tmp_path: Path, estimator: Any) -> None:
    file = saved(tmp_path, estimator.fit(ROWS, NUMBER))
    np.testing.assert_allclose(answer(file, tensors(FEATURES))[:, 0], estimator.predict(TESTED), rtol=1e-6, atol=1e-6)


def test_a_pipeline_in_a_file_of_skops(tmp_path: Path) -> None:
    estimator = make_pipeline(StandardScaler(), RandomForestClassifier(10, max_depth=4, random_state=0)).fit(ROWS, TWO)
    file = saved(tmp_path, estimator)
    assert width_of(file, predict_proba="true") == 2
    expected = estimator.predict_proba(TESTED)
    for width in (2, 1):
        found = answer(file, tensors(FEATURES, width) + parameters(predict_proba="true"))
        np.testing.assert_allclose(found, expected[:, 2 - width :], atol=1e-6)


def test_pickles_are_loaded_only_where_the_operator_says_so(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    file = tmp_path / "model.joblib"
    joblib.dump(Trap(), file)
    text = refusal(file, tensors(FEATURES) + parameters(**{"allow-pickle": "true"}))
    assert "a pickle can run any code when it is loaded" in text and "--backend-config=fil,allow-pickle=true" in text
    assert not mark.exists()
    assert "expected an estimator of scikit-learn" in refusal(file, tensors(FEATURES), **ALLOWED)
    assert mark.exists()


def test_types_that_skops_does_not_trust(tmp_path: Path) -> None:
    class Own(RandomForestRegressor):
        """A class that is not scikit-learn's."""

    Own.__module__, Own.__qualname__ = "my_package", "Own"
    file = saved(tmp_path, RandomForestRegressor(2).fit(ROWS, NUMBER))
    content = file.read_bytes()
    assert content
    skops_io.dump(Own(2).fit(ROWS, NUMBER), file)
    assert "types that skops does not trust: my_package.Own" in refusal(file, tensors(FEATURES))


@pytest.mark.parametrize("name", ["model.skops", "model.joblib"])
def test_files_that_are_cut(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    dump = skops_io.dump if name == "model.skops" else joblib.dump
    dump(RandomForestRegressor(5).fit(ROWS, NUMBER), file)
    file.write_bytes(file.read_bytes()[:3000])
    text = refusal(file, tensors(FEATURES), **ALLOWED)
    assert (
        f"{file} cannot be read as scikit-learn in a" in text or f"{file} cannot be read as scikit-learn in s" in text
    )


def test_an_estimator_that_is_not_fitted(tmp_path: Path) -> None:
    file = saved(tmp_path, LogisticRegression())
    assert "holds a LogisticRegression, expected an estimator of scikit-learn that is fitted" in refusal(
        file, tensors(FEATURES)
    )


TWO_PICKLES = """
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from naiad.backends.fil.estimator import load_estimator
from naiad.backends.fil.formats import JOBLIB

with ThreadPoolExecutor(2) as pool:
    load = partial(load_estimator, "m", file_format=JOBLIB, pickles=True)
    for found in [pool.submit(load, Path(file)) for file in sys.argv[1:]]:
        print(found.exception())
"""


def test_two_pickles_whose_modules_import_each_other_load_at_the_same_time(tmp_path: Path) -> None:
    """As those of scikit-learn do. The pickles have a text, which is refused once the modules are imported."""
    pickles = [tmp_path / "first.joblib", tmp_path / "second.joblib"]
    for file, module in zip(pickles, ("first", "second.part"), strict=True):
        file.write_bytes(f"c{module}\nPART\n.".encode())
    said = run_beside_packages(tmp_path, TWO_PICKLES, *map(str, pickles)).splitlines()
    assert [line.partition(" holds a ")[2].partition(",")[0] for line in said] == ["str", "str"], said
