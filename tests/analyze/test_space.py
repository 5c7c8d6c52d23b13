"""What is measured at the points of a space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from naiad.analyze.errors import TrialError
from naiad.analyze.settings.read import parse_analyze
from naiad.analyze.space.build import build_space
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Dimension, LoadLimits, Space

STEP = {"name": "step", "backend": "identity", "max_batch_size": 64}


def space_of(own: int) -> Space:
    """An ensemble whose only step is searched with batches of 4 and 16."""
    ensemble = {"name": "both", "platform": "ensemble", "ensemble_scheduling": {"step": []}, "max_batch_size": own}
    subjects = (Subject("both", {"both": ensemble}), Subject("step", {"step": STEP}, is_composing=True))
    return Space(subjects, (Dimension(1, Knob.MAX_BATCH_SIZE, (4, 16)),), (LoadLimits(), LoadLimits()))


@pytest.mark.parametrize(("own", "expected"), [(64, [4, 16]), (8, [4, None]), (2, [None, None])])
def test_an_ensemble_takes_no_larger_batches_than_its_steps(own: int, expected: list[int | None]) -> None:
    space = space_of(own)
    trials = [space.trial(point) for point in space.points()]
    assert [trial.variants[0].changes.get("max_batch_size") for trial in trials] == expected
    assert [trial.composing[0].changes["max_batch_size"] for trial in trials] == [4, 16]
    assert space.default_trial().variants[0].is_default


def test_requests_have_no_more_rows_than_a_model_takes() -> None:
    model = Subject("step", {"step": STEP})
    dimensions = (Dimension(0, Knob.MAX_BATCH_SIZE, (1, 4, 16)), Dimension(0, Knob.BATCH_SIZE, (1, 8)))
    space = Space((model,), dimensions, (LoadLimits(),))
    assert list(space.points()) == [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert space.size == 6


def listed_space(folder: Path, sizes: list[int], configuration: dict[str, Any]) -> Space:
    """The space of a model of at most 64 rows with listed batch sizes and configurations."""
    file = folder / "config.yaml"
    section = {"parameters": {"batch_sizes": sizes, "concurrency": 2}, "model_config_parameters": configuration}
    file.write_text(yaml.safe_dump({"model_repository": str(folder), "profile_models": {"step": section}}))
    settings = parse_analyze(["profile", "-f", str(file)])
    return build_space(settings, [Subject("step", {"step": STEP})], settings.models)


def test_batch_sizes_that_only_a_listed_configuration_takes_are_measured(tmp_path: Path) -> None:
    space = listed_space(tmp_path, [32, 100, 500], {"max_batch_size": [64, 128]})
    found = [(trial.variants[0].changes, trial.loads[0].batch_size) for trial in map(space.trial, space.points())]
    assert found == [({"max_batch_size": 64}, 32), ({"max_batch_size": 128}, 32), ({"max_batch_size": 128}, 100)]


def test_batch_sizes_that_no_configuration_takes_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="batch_sizes: found 65, 100, expected at most 64, which is what the model"):
        listed_space(tmp_path, [65, 100], {"instance_group": [{"count": [1, 2]}]})
