"""Everything that a run writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.files import write_whole
from naiad.analyze.pbtxt import pbtxt_of
from naiad.analyze.report.csv_files import configs_of, write_tables
from naiad.analyze.report.detailed import write_detail
from naiad.analyze.report.html_file import write_html
from naiad.analyze.report.json_file import write_json
from naiad.analyze.result import Analysis
from naiad.analyze.settings.settings import AnalyzeSettings


def check_output_models(settings: AnalyzeSettings) -> None:
    """Refuse a folder for the best configurations that holds something else; called before anything is measured.

    Raises:
        AnalyzeError: it is not empty, and need not be overwritten.
    """
    folder = settings["output_model_repository_path"]
    if folder is None or settings["override_output_model_repository"]:
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise AnalyzeError(
            f"output_model_repository_path '{folder}' is not empty: name another folder, or give "
            "--override-output-model-repository"
        )


def write_results(analysis: Analysis, settings: AnalyzeSettings) -> list[Path]:
    """Write the tables and reports that the settings ask for; those that were written.

    A file that cannot be written is one of the analysis's failures, and the others are written all the same.
    """
    export = Path(settings["export_path"])
    report, page = export / "reports" / "report.json", export / "reports" / "summary.html"
    files = _written(analysis, report, lambda: write_json(analysis, report))
    if not settings["skip_summary_reports"]:
        tables = export / "results"
        files += _written(analysis, tables, lambda: write_tables(analysis, settings, tables))
        files += _written(analysis, page, lambda: write_html(analysis, settings, page))
    if not settings["skip_detailed_reports"]:
        files += _written(analysis, export / "reports" / "detailed", lambda: _write_details(analysis, settings))
    if settings["output_model_repository_path"] is not None:
        models = Path(settings["output_model_repository_path"])
        files += _written(analysis, models, lambda: _write_models(analysis, settings))
    return files


def _written(analysis: Analysis, place: Path, write: Callable[[], Iterable[Path] | None]) -> list[Path]:
    """The files that ``write`` has written to ``place``: ``place`` itself where it names none."""
    try:
        found = write()
    except OSError as error:
        analysis.failures.append(f"cannot write '{error.filename or place}': {error.strerror or error}")
        return []
    return [place] if found is None else list(found)


def _write_details(analysis: Analysis, settings: AnalyzeSettings) -> list[Path]:
    """Write a page about each of the best configurations."""
    files: list[Path] = []
    folders: set[str] = set()
    for profile in analysis.profiles:
        for row in profile.ranked()[: settings["num_configs_per_model"]]:
            folder = analysis.folder(row.trial)
            if folder in folders:
                # One configuration of a model, with another one of a model that it calls.
                folder = "+".join(analysis.names(row.trial))
            folders.add(folder)
            place = Path(settings["export_path"]) / "reports" / "detailed" / folder
            files.append(write_detail(analysis, profile, row.trial.setup, place, settings["plots"] or {}))
    return files


def _write_models(analysis: Analysis, settings: AnalyzeSettings) -> list[Path]:
    """Write the best configurations as models, whose versions are links to those of the repository."""
    folder = Path(settings["output_model_repository_path"])
    files = []
    for profile in analysis.profiles:
        for row in profile.ranked()[: settings["num_configs_per_model"]]:
            names = analysis.names(row.trial)
            new_names = {v.model: name for v, name in zip(row.trial.setup, names, strict=True)}
            for name, variant, config in zip(names, row.trial.setup, configs_of(analysis, row), strict=True):
                made = folder / name
                made.mkdir(parents=True, exist_ok=True)
                try:
                    write_whole(made / "config.pbtxt", pbtxt_of(_renamed(config, name, new_names)))
                except TrialError as error:
                    analysis.failures.append(f"{name}: {error}")
                    continue
                if settings["model_repository"] is not None:
                    _link_versions(settings.repository / variant.model, made)
                files.append(made / "config.pbtxt")
    return list(dict.fromkeys(files))


def _renamed(config: Mapping[str, Any], name: str, names: Mapping[str, str]) -> dict[str, Any]:
    """A configuration under a new name, whose steps call models under theirs."""
    made = {**config, "name": name}
    if "ensemble_scheduling" in config:
        scheduling = config["ensemble_scheduling"]
        steps = [{**s, "model_name": names.get(s["model_name"], s["model_name"])} for s in scheduling.get("step", [])]
        made["ensemble_scheduling"] = {**scheduling, "step": steps}
    return made


def _link_versions(source: Path, made: Path) -> None:
    for entry in source.iterdir() if source.is_dir() else ():
        link = made / entry.name
        if entry.name != "config.pbtxt" and not link.exists():
            link.symlink_to(entry.absolute())
