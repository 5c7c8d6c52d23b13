"""A page about one configuration: every load on it, and where the time goes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from naiad.analyze.checkpoint import Checkpoint, latest, read_checkpoint
from naiad.analyze.errors import AnalyzeError
from naiad.analyze.files import write_whole
from naiad.analyze.measurement import Measurement
from naiad.analyze.pbtxt import pbtxt_of
from naiad.analyze.rank.score import Judge
from naiad.analyze.report.csv_files import configs_of
from naiad.analyze.report.figures import breakdown_chart, curve_chart, memory_chart, parts_of, plot_chart
from naiad.analyze.report.html_file import level_table
from naiad.analyze.result import Analysis, ModelProfile
from naiad.analyze.settings.goal import Goal
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.analyze.trial import ModelLoad, Variant
from naiad.config.parsing.suggest import did_you_mean
from naiad.perf.report.page import bullets, charts, page

_NAMES = {
    "perf_client_send_recv": "sending and receiving in the client",
    "perf_server_queue": "the queue",
    "perf_server_compute_input": "gathering inputs",
    "perf_server_compute_infer": "the model",
    "perf_server_compute_output": "scattering outputs",
    "other": "the network and the server around the model",
}


def write_detail(
    analysis: Analysis, profile: ModelProfile, setup: tuple[Variant, ...], folder: Path, plots: Mapping[str, Any]
) -> Path:
    """Write the page of one configuration to a folder of its own.

    Raises:
        OSError: it cannot be written.
    """
    file = folder / "report.html"
    write_whole(file, detail_page(analysis, profile, setup, plots))
    return file


def detail_page(analysis: Analysis, profile: ModelProfile, setup: tuple[Variant, ...], plots: Mapping[str, Any]) -> str:
    """The text of the page."""
    rows = profile.loads_of(setup)
    name = analysis.name(rows[0].trial)
    figures = [breakdown_chart(analysis, rows, place) for place in range(len(rows[0].models))]
    figures += [curve_chart(analysis, profile, [setup]), memory_chart(analysis, profile, [setup])]
    figures += [plot_chart(analysis, profile, [setup], plot) for plot in plots.values() if isinstance(plot, Mapping)]
    body = [f"<h1>{escape(name)}</h1>", bullets(_findings(rows)), charts([figure for figure in figures if figure])]
    body += ["<h2>Loads</h2>", level_table(rows), "<h2>Configuration</h2>"]
    for config in configs_of(analysis, rows[0]):
        body.append(f'<pre class="panel">{escape(pbtxt_of(config))}</pre>')
    return page(f"{name}: naiad analyze", body)


def _findings(rows: Sequence[Measurement]) -> list[str]:
    most = max(rows, key=lambda row: row.throughput)
    parts = parts_of(most)
    total = sum(parts.values()) or 1.0
    largest = max(parts, key=lambda name: parts[name])
    loads = "; ".join(load.text for load in most.trial.loads)
    return [
        f"Most throughput: {most.throughput:,.1f} inferences/s at {loads}, p99 {most.p99_ms:.3g} ms.",
        f"There {parts[largest] / total:.0%} of the average latency is {_NAMES[largest]}.",
    ]


def write_reports(settings: AnalyzeSettings) -> Iterator[Path]:
    """Write the pages that ``naiad analyze report`` asks for, one after another, from the last checkpoint.

    Raises:
        AnalyzeError: there is no checkpoint, or it has no such configuration.
        OSError: a page cannot be written.
    """
    folder = Path(settings["checkpoint_directory"])
    file = latest(folder)
    if file is None:
        raise AnalyzeError(
            f"found no checkpoint '{folder / '0.ckpt'}' or later: run naiad analyze profile first, or name its folder "
            "with --checkpoint-directory"
        )
    checkpoint = read_checkpoint(file)
    analysis = Analysis(checkpoint, endpoint=str(file))
    for name, plots in settings.report_configs.items():
        profile, setup = _named(checkpoint, name, settings)
        shown = {**(settings["plots"] or {}), **plots}
        trial = profile.loads_of(setup)[0].trial
        named = name if name == "+".join(analysis.names(trial)) else analysis.folder(trial)
        place = Path(settings["export_path"]) / "reports" / "detailed" / named
        yield write_detail(analysis, profile, setup, place, shown)


def _named(checkpoint: Checkpoint, name: str, settings: AnalyzeSettings) -> tuple[ModelProfile, tuple[Variant, ...]]:
    """The measurements of a configuration by its name, at the load that the settings choose."""
    profile = ModelProfile((), Judge((Goal(),)))
    setups: set[tuple[Variant, ...]] = set()
    loads: set[ModelLoad] = set()
    for _, measured in checkpoint.measurements:
        names = checkpoint.names_of(measured.trial)
        loaded = names[: len(measured.trial.variants)]
        if name not in (*loaded, "+".join(loaded), "+".join(names)) or measured.error:
            continue
        loads.update(measured.trial.loads)
        if _is_chosen(measured, settings):
            profile.repeats.setdefault(measured.trial, []).append(measured)
            setups.add(measured.trial.setup)
    if not setups:
        raise AnalyzeError(_not_measured(checkpoint, name, loads, settings))
    return profile, max(setups, key=lambda setup: len(profile.loads_of(setup)))


def _not_measured(checkpoint: Checkpoint, name: str, loads: Collection[ModelLoad], settings: AnalyzeSettings) -> str:
    if loads:
        concurrency, rate = settings["report_concurrency"], settings["report_request_rate"]
        wanted = f"the request rate {rate}" if concurrency is None else f"the concurrency {concurrency}"
        found = sorted(loads, key=lambda load: (load.batch_size, load.concurrency, load.rate))
        return f"'{name}' was not measured at {wanted}; it was at {'; '.join(load.text for load in found)}"
    known = sorted(checkpoint.names.values())
    return f"the checkpoint has no measurement of '{name}'{did_you_mean(name, known)}; it has {', '.join(known)}"


def _is_chosen(measured: Measurement, settings: AnalyzeSettings) -> bool:
    concurrency, rate = settings["report_concurrency"], settings["report_request_rate"]
    loads = measured.trial.loads
    if concurrency is not None:
        return all(load.concurrency == concurrency for load in loads)
    return rate is None or all(load.rate == rate for load in loads)
