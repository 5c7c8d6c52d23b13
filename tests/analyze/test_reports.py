"""What a run writes and says at its end."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from naiad.analyze.checkpoint import Checkpoint, write_checkpoint
from naiad.analyze.errors import AnalyzeError
from naiad.analyze.measurement import Measurement, ModelFigures
from naiad.analyze.rank.score import Judge
from naiad.analyze.report.detailed import write_reports
from naiad.analyze.report.text import summary_text
from naiad.analyze.report.write import write_results
from naiad.analyze.result import Analysis, ModelProfile, SetOfModels
from naiad.analyze.settings.goal import Goal
from naiad.analyze.settings.read import parse_analyze
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import AnalysisTrial
from support.interrupted_imports import interrupted_import
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


def test_each_of_the_best_configurations_has_a_page(analysis: Analysis, tmp_path: Path) -> None:
    write_results(analysis, settings_in(tmp_path))
    pages = {file.parent.name for file in (tmp_path / "reports" / "detailed").rglob("report.html")}
    assert pages == {analysis.name(row.trial) for row in analysis.profiles[0].ranked()}
    assert len(pages) == 3


def test_charts_that_a_file_asks_for_are_on_all_pages(analysis: Analysis, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    plots = "plots:\n  ours:\n    title: Our own chart\n    x_axis: concurrency\n    y_axis: perf_throughput\n"
    file.write_text(f"model_repository: {tmp_path}\nprofile_models: [sleeping]\nexport_path: {tmp_path}\n{plots}")
    written = write_results(analysis, parse_analyze(["profile", "-f", str(file)]))
    pages = [made for made in written if made.suffix == ".html"]
    assert len(pages) == 4
    assert all("Our own chart" in page.read_text() for page in pages)


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


def test_a_report_at_a_load_that_was_not_measured_names_those_that_were(tmp_path: Path) -> None:
    source, checkpoint = RecordedSource("sleeping"), Checkpoint()
    trial = source.space.trial(next(source.space.points()))
    name = checkpoint.name(trial.variants[0].model, trial.variants[0].changes_json)
    checkpoint.measurements = [("digest", source.measure(trial, 1))]
    write_checkpoint(checkpoint, tmp_path / "0.ckpt")
    words = ["report", "-n", name, "-s", str(tmp_path), "-e", str(tmp_path)]
    (file,) = write_reports(parse_analyze([*words, f"--report-concurrency={trial.loads[0].concurrency}"]))
    assert file.is_file()
    with pytest.raises(AnalyzeError, match=f"'{name}' was not measured at the concurrency 3; it was at batch size 1"):
        next(write_reports(parse_analyze([*words, "--report-concurrency=3"])))


def test_an_interrupt_ends_the_reports_behind_the_present_page(tmp_path: Path) -> None:
    source, checkpoint = RecordedSource("sleeping"), Checkpoint()
    trials = [source.space.trial(point) for point in islice(source.space.points(), 2)]
    names = [checkpoint.name(trial.variants[0].model, trial.variants[0].changes_json) for trial in trials]
    checkpoint.measurements = [("digest", source.measure(trial, 1)) for trial in trials]
    write_checkpoint(checkpoint, tmp_path / "0.ckpt")
    words = ["analyze", "report", "-n", ",".join(names), "-s", str(tmp_path), "-e", str(tmp_path)]
    code, errors = interrupted_import(words, tmp_path, "naiad.analyze.pbtxt", 60)
    assert code == 130
    assert "interrupted: the reports behind this one are missing" in errors
    assert len(list(tmp_path.rglob("report.html"))) == 1
