"""What a run writes and says at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.analyze.checkpoint import Checkpoint
from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.rank.score import Judge
from naiad.analyze.report.text import summary_text
from naiad.analyze.report.write import write_results
from naiad.analyze.result import Analysis, ModelProfile, SetOfModels
from naiad.analyze.settings.goal import Goal
from naiad.analyze.settings.read import parse_analyze
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import AnalysisTrial
from support.recorded_measurements import RecordedSource


@pytest.fixture
def analysis() -> Analysis:
    """A run that measured the default and two more configurations of one model."""
    source = RecordedSource("sleeping")
    profile = ModelProfile(source.space.subjects, Judge((Goal(),)), source.space.size)
    for trial in [source.space.default_trial(), *map(source.space.trial, list(source.space.points())[:2])]:
        profile.repeats[trial] = [source.measure(trial, 1)]
    profile.default = profile.repeats[source.space.default_trial()][0]
    profile.judge.base = profile.default
    return Analysis(Checkpoint(), [profile])


def settings_in(folder: Path) -> AnalyzeSettings:
    file = folder / "config.yaml"
    file.write_text(f"model_repository: {folder}\nprofile_models: [sleeping]\nexport_path: {folder}\n")
    return parse_analyze(["profile", "-f", str(file)])


def test_a_file_that_cannot_be_written_is_named_and_the_others_are_there(analysis: Analysis, tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in the way")
    files = write_results(analysis, settings_in(tmp_path))
    assert {file.parent for file in files} == {tmp_path / "results"}
    assert all(file.stat().st_size for file in files)
    assert len(analysis.failures) == 3
    assert all(text.startswith(f"cannot write '{tmp_path / 'reports'}") for text in analysis.failures)


def test_everything_that_is_written_is_named(analysis: Analysis, tmp_path: Path) -> None:
    files = write_results(analysis, settings_in(tmp_path))
    assert analysis.failures == []
    written = {file for folder in ("reports", "results") for file in (tmp_path / folder).rglob("*") if file.is_file()}
    assert set(files) == written


def test_sets_of_models_say_what_each_model_loses(analysis: Analysis, tmp_path: Path) -> None:
    def figures(name: str, p99_ms: float) -> ModelFigures:
        return ModelFigures(name, {"perf_throughput": 10.0, "perf_latency_p99": p99_ms}, [10.0], [p99_ms])

    nothing = AnalysisTrial((), ())
    busy = Measurement(nothing, [figures("a", 30.0), figures("b", 4.0)], {"cpu_used_ram": 512.0})
    analysis.sets = [
        SetOfModels(("a", "b"), busy, (10.0, 2.0)),
        SetOfModels(("a", "c"), Measurement(nothing, error="no room for 'c'")),
    ]
    text = summary_text(analysis, settings_in(tmp_path))
    assert "a + b: 20.0 inferences/s together, 512 MB; a p99 30 ms (alone 10), b p99 4 ms (alone 2)" in text
    assert "a + c: no room for 'c'" in text
