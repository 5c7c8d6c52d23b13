"""The page about all models: it needs nothing from elsewhere."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from naiad.analyze.errors import TrialError
from naiad.analyze.files import write_whole
from naiad.analyze.measurement import Measurement
from naiad.analyze.pbtxt import load_command, pbtxt_of
from naiad.analyze.rank.certainty import order_text
from naiad.analyze.report.csv_files import configs_of
from naiad.analyze.report.figures import (
    breakdown_chart,
    curve_chart,
    level_of,
    memory_chart,
    plot_chart,
    shown_setups,
)
from naiad.analyze.report.recommend import Recommendation, recommendations
from naiad.analyze.report.text import gain_text
from naiad.analyze.result import Analysis, ModelProfile, SetOfModels
from naiad.analyze.settings.settings import AnalyzeSettings
from naiad.perf.report.page import bullets, charts, page, pairs, table, tiles

_PRE = 'style="white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0;font:12px/1.45 ui-monospace,Consolas,monospace"'


def write_html(analysis: Analysis, settings: AnalyzeSettings, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.
    """
    write_whole(file, summary_page(analysis, settings))


def summary_page(analysis: Analysis, settings: AnalyzeSettings) -> str:
    """The text of the page."""
    names = ", ".join(profile.name for profile in analysis.profiles) or "naiad analyze"
    body = [f"<h1>{escape(names)}</h1>", f'<p class="sub">measured at {escape(analysis.endpoint or "no server")}</p>']
    if analysis.command:
        body.append(f"<p><code>naiad analyze {escape(shlex.join(analysis.command))}</code></p>")
    if analysis.is_interrupted:
        body.append('<p class="warn">The run was interrupted: what follows rests on the measurements until then.</p>')
    for text in analysis.failures:
        body.append(f'<p class="warn">{escape(text)}</p>')
    for profile in analysis.profiles:
        body += profile_section(analysis, profile, settings, is_only=len(analysis.profiles) == 1)
    if analysis.sets:
        body += _sets(analysis.sets)
    body += ["<h2>Machine</h2>", pairs(list(analysis.machine.items()))]
    return page(f"{names}: naiad analyze", body)


def profile_section(
    analysis: Analysis, profile: ModelProfile, settings: AnalyzeSettings, *, is_only: bool
) -> list[str]:
    """Everything about one model, or about models that were measured together."""
    parts = [] if is_only else [f"<h2>{escape(profile.name)}</h2>"]
    ranked = profile.ranked()
    failed = [row for row in profile.rows if row.error]
    if not ranked:
        parts.append('<p class="warn">Nothing could be measured.</p>')
        return [*parts, bullets([f"{analysis.name(row.trial)}: {row.error}" for row in failed])]
    best = ranked[0]
    parts.append(_tiles(profile, best))
    parts.append(bullets(_findings(analysis, profile, ranked)))
    parts += ["<h2>Recommendations</h2>", _recommendations(analysis, profile)]
    setups = shown_setups(profile, settings["num_configs_per_model"])
    figures = [curve_chart(analysis, profile, setups), memory_chart(analysis, profile, setups)]
    for setup in dict.fromkeys((best.trial.setup, setups[-1])):
        rows = profile.loads_of(setup)
        figures += [breakdown_chart(analysis, rows, place) for place in range(len(rows[0].models))]
    plots = [plot for plot in (settings["plots"] or {}).values() if isinstance(plot, Mapping)]
    figures += [plot_chart(analysis, profile, setups, plot) for plot in plots]
    parts += ["<h2>Curves</h2>", charts([figure for figure in figures if figure])]
    parts += [f"<h2>Loads on {escape(analysis.name(best.trial))}</h2>", level_table(profile.loads_of(best.trial.setup))]
    parts += ["<h2>All measurements</h2>", f"<details><summary>{len(profile.rows)} rows</summary>"]
    return [*parts, _all_rows(analysis, profile), "</details>"]


def _tiles(profile: ModelProfile, best: Measurement) -> str:
    values = [
        (f"{best.throughput:,.0f}", "inferences/s of the best"),
        (f"{best.p99_ms:.3g} ms", "its p99 latency"),
        (gain_text(profile, best.throughput), "throughput beside the default"),
        (f"{profile.space_size:,}", "configurations and loads to choose from"),
        (str(sum(map(len, profile.repeats.values()))), "measurements"),
    ]
    return tiles(values)


def _findings(analysis: Analysis, profile: ModelProfile, ranked: Sequence[Measurement]) -> list[str]:
    lines = []
    for first, second in itertools.pairwise(ranked[:4]):
        order = order_text(first, second, profile.noise)
        lines.append(f"{analysis.name(first.trial)} before {analysis.name(second.trial)}: {order}")
    lines.append(f"Measurements of one configuration differ by about {profile.noise.between:.1%} (standard deviation).")
    broken = profile.judge.broken(ranked[0])
    if broken:
        lines.append(f"No configuration keeps all constraints; the best of them breaks {', '.join(broken)}.")
    failed = [row for row in profile.rows if row.error]
    lines += [f"{analysis.name(row.trial)} failed: {row.error}" for row in failed[:5]]
    if len(failed) > 5:
        lines.append(f"{len(failed) - 5} more failed; the table of all measurements has their errors.")
    return lines


def _recommendations(analysis: Analysis, profile: ModelProfile) -> str:
    found = "".join(_recommendation(analysis, one) for one in recommendations(profile))
    columns = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(320px,100%),1fr));gap:16px"
    return f'<div style="{columns}">{found}</div>'


def _recommendation(analysis: Analysis, one: Recommendation) -> str:
    row = one.row
    load = "; ".join(dict.fromkeys(load.text for load in row.trial.loads))
    figures = f"{row.throughput:,.1f} inferences/s, p99 {row.p99_ms:.3g} ms at {load}"
    parts = [f"<b>{escape(one.title)}</b><br>{escape(', '.join(analysis.names(row.trial)))}"]
    parts.append(f'<p class="sub">{escape(figures)}</p>')
    for variant, config in zip(row.trial.setup, configs_of(analysis, row), strict=True):
        try:
            text = pbtxt_of(config)
        except TrialError as error:
            text = f"# {error}"
        shown = pbtxt_of(_short(config, variant.changes)) if not variant.is_default else "# as in the repository\n"
        parts.append(f"<pre {_PRE}>{escape(shown)}</pre>")
        parts.append(
            f"<details><summary>config.pbtxt of {escape(variant.model)}</summary><pre {_PRE}>{escape(text)}</pre>"
        )
        command = load_command(variant.model, config, "localhost:8000")
        parts.append(f"</details><details><summary>Load it</summary><pre {_PRE}>{escape(command)}</pre></details>")
    return f'<div class="panel">{"".join(parts)}</div>'


def _short(config: dict[str, object], changes: dict[str, object]) -> dict[str, object]:
    """The fields that a variant changes."""
    found = {name: config[name] for name in changes if name in config and name != "parameters"}
    parameters = changes.get("parameters")
    return {**found, "parameters": parameters} if parameters else found


def level_table(rows: Sequence[Measurement]) -> str:
    """One row for each load: latency, throughput, and what the machine was busy with."""
    header = ["load", "batch size", "p99 ms", "average ms", "inferences/s", "per execution", "CPU %", "RSS MB"]
    header += ["GPU memory MB", "GPU %", "GPU power W"]
    return table(header, [_level(row) for row in rows])


def _level(row: Measurement) -> list[str]:
    names = ("cpu_utilization", "cpu_used_ram", "gpu_used_memory", "gpu_utilization", "gpu_power_usage")
    batch = row.models[0].figures.get("mean_batch")
    average = max(model.figures.get("perf_latency_avg", 0.0) for model in row.models)
    return [
        level_of(row),
        ", ".join(str(load.batch_size) for load in row.trial.loads),
        f"{row.p99_ms:.3g}",
        f"{average:.3g}",
        f"{row.throughput:,.1f}",
        "-" if batch is None else f"{batch:.1f}",
        *("-" if (value := row.figure(name)) is None else f"{value:,.0f}" for name in names),
    ]


def _all_rows(analysis: Analysis, profile: ModelProfile) -> str:
    header = ["configuration", "load", "inferences/s", "p99 ms", "gain", "state"]
    rows = []
    for row in profile.judge.ranked(profile.rows):
        load = "; ".join(dict.fromkeys(load.text for load in row.trial.loads))
        broken = profile.judge.broken(row)
        state = row.error or (f"breaks {', '.join(broken)}" if broken else "")
        figures = (
            ["-"] * 3
            if row.error
            else [f"{row.throughput:,.1f}", f"{row.p99_ms:.3g}", gain_text(profile, row.throughput)]
        )
        rows.append([", ".join(analysis.names(row.trial)), load, *figures, state])
    return table(header, rows, texts=(0, 1, 5))


def _sets(sets: Sequence[SetOfModels]) -> list[str]:
    """Which models fit the machine together."""
    rows = []
    for one in sets:
        found = one.measured
        if found.error:
            rows.append([" + ".join(one.names), "-", "-", "-", found.error])
            continue
        beside = [
            f"{model.model} {model.figures['perf_latency_p99']:.3g} ms (alone {alone:.3g})"
            for model, alone in zip(found.models, one.alone_p99_ms, strict=False)
        ]
        memory = found.figure("gpu_used_memory") or found.figure("cpu_used_ram")
        rows.append(
            [
                " + ".join(one.names),
                f"{found.throughput:,.1f}",
                "-" if memory is None else f"{memory:,.0f}",
                ", ".join(beside),
                "fits",
            ]
        )
    header = ["models", "inferences/s together", "memory MB", "p99 with the others busy", "state"]
    return ["<h2>Models beside each other</h2>", table(header, rows, texts=(0, 3, 4))]
