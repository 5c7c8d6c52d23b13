"""What is measured at the points of a space."""

from __future__ import annotations

import pytest

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
