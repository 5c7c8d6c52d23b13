"""Everything that a run writes."""

from __future__ import annotations

from pathlib import Path

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.pbtxt import pbtxt_of
from naiad.analyze.report.csv_files import configs_of, write_tables
from naiad.analyze.report.detailed import write_detail
from naiad.analyze.report.html_file import write_html
from naiad.analyze.report.json_file import write_json
from naiad.analyze.result import Analysis
from naiad.analyze.settings.settings import AnalyzeSettings


def write_results(analysis: Analysis, settings: AnalyzeSettings) -> list[Path]:
    """Write the tables and reports that the settings ask for.

    Raises:
        OSError: a file cannot be written.
        AnalyzeError: the output repository is not empty.
    """
    export = Path(settings["export_path"])
    report = export / "reports" / "report.json"
    write_json(analysis, report)
    files = [report]
    if not settings["skip_summary_reports"]:
        files += write_tables(analysis, settings, export / "results")
        page = export / "reports" / "summary.html"
        write_html(analysis, settings, page)
        files.append(page)
    if not settings["skip_detailed_reports"]:
        for profile in analysis.profiles:
            for row in profile.ranked()[:1]:
                files.append(write_detail(analysis, profile, row.trial.setup, export, {}))
    if settings["output_model_repository_path"] is not None:
        files += _write_models(analysis, settings)
    return files


def _write_models(analysis: Analysis, settings: AnalyzeSettings) -> list[Path]:
    """Write the best configurations as models, whose versions are links to those of the repository."""
    folder = Path(settings["output_model_repository_path"])
    if folder.is_dir() and any(folder.iterdir()) and not settings["override_output_model_repository"]:
        raise AnalyzeError(
            f"output_model_repository_path '{folder}' is not empty: name another folder, or give "
            "--override-output-model-repository"
        )
    files = []
    for profile in analysis.profiles:
        for row in profile.ranked()[: settings["num_configs_per_model"]]:
            for name, variant, config in zip(
                analysis.names(row.trial), row.trial.setup, configs_of(analysis, row), strict=True
            ):
                made = folder / name
                made.mkdir(parents=True, exist_ok=True)
                try:
                    (made / "config.pbtxt").write_text(pbtxt_of({**config, "name": name}))
                except TrialError as error:
                    analysis.failures.append(f"{name}: {error}")
                    continue
                if settings["model_repository"] is not None:
                    _link_versions(settings.repository / variant.model, made)
                files.append(made / "config.pbtxt")
    return files


def _link_versions(source: Path, made: Path) -> None:
    for entry in source.iterdir() if source.is_dir() else ():
        link = made / entry.name
        if entry.name != "config.pbtxt" and not link.exists():
            link.symlink_to(entry.absolute())
