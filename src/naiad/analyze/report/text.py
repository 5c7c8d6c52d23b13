"""The summary as a person reads it on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.analyze.rank.certainty import order_text
from naiad.analyze.report.recommend import recommendations
from naiad.analyze.result import Analysis, ModelProfile, SetOfModels
from naiad.analyze.settings.settings import AnalyzeSettings


def summary_text(analysis: Analysis, settings: AnalyzeSettings) -> str:
    """The best configurations of each model."""
    parts = [_profile(analysis, profile, settings) for profile in analysis.profiles]
    if analysis.sets:
        parts.append(_sets(analysis.sets))
    if settings["num_top_model_configs"] and len(analysis.profiles) > 1:
        parts.append(_top(analysis, settings["num_top_model_configs"]))
    return "\n".join(parts) + ("\n" if parts else "")


def gain_text(profile: ModelProfile, throughput: float) -> str:
    """How much throughput is beside that of the default: ``+120%``."""
    base = profile.default.throughput if profile.default is not None and not profile.default.error else 0.0
    return f"{throughput / base - 1:+.0%}" if base else "-"


def _profile(analysis: Analysis, profile: ModelProfile, settings: AnalyzeSettings) -> str:
    ranked = profile.ranked()
    searched = sum(len(profile.repeats[trial]) for trial in profile.searched or profile.repeats)
    lines = [
        f"*** {profile.name} ***",
        f"  {searched} measurements of a search over {profile.space_size} configurations and loads, "
        f"{profile.measured} in all in {profile.took_s:.0f} s, {profile.reused} used again",
    ]
    failed = [row for row in profile.rows if row.error]
    if not ranked:
        return "\n".join([*lines, f"  nothing could be measured: {failed[0].error if failed else 'no time'}"]) + "\n"
    header = ("configuration", "load", "inferences/s", "p99 ms", "gain", "constraints")
    shown = ranked[: settings["num_configs_per_model"]]
    if profile.default is not None and not profile.default.error and all(not row.trial.is_default for row in shown):
        shown.append(profile.default)
    rows = [header]
    for row in shown:
        load = "; ".join(dict.fromkeys(load.text for load in row.trial.loads))
        broken = profile.judge.broken(row)
        kept = "breaks " + ", ".join(broken) if broken else "kept"
        gain = gain_text(profile, row.throughput)
        rows.append((analysis.name(row.trial), load, f"{row.throughput:,.1f}", f"{row.p99_ms:.3g}", gain, kept))
    widths = [max(len(row[place]) for row in rows) for place in range(len(header))]
    for cells in rows:
        texts = [
            c.rjust(w) if place in (2, 3, 4) else c.ljust(w)
            for place, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append("  " + "  ".join(texts).rstrip())
    if len(ranked) > 1:
        first, second = ranked[:2]
        order = order_text(first, second, profile.noise)
        lines.append(f"  {analysis.name(first.trial)} before {analysis.name(second.trial)}: {order}")
    for one in recommendations(profile):
        load = "; ".join(dict.fromkeys(load.text for load in one.row.trial.loads))
        lines.append(
            f"  {one.title}: {analysis.name(one.row.trial)}, {load}: {one.row.throughput:,.1f} inferences/s, "
            f"p99 {one.row.p99_ms:.3g} ms"
        )
    if failed:
        lines.append(f"  {len(failed)} trials failed, the first with: {failed[0].error}")
    return "\n".join(lines) + "\n"


def _sets(sets: Sequence[SetOfModels]) -> str:
    """Which models fit the machine together: the p99 of each with the others busy, and alone."""
    lines = ["*** Models beside each other ***"]
    for one in sets:
        names, found = " + ".join(one.names), one.measured
        if found.error:
            lines.append(f"  {names}: {found.error}")
            continue
        times = [
            f"{model.model} p99 {model.figures['perf_latency_p99']:.3g} ms (alone {alone:.3g})"
            for model, alone in zip(found.models, one.alone_p99_ms, strict=False)
        ]
        memory = found.figure("gpu_used_memory") or found.figure("cpu_used_ram")
        room = f", {memory:,.0f} MB" if memory else ""
        lines.append(f"  {names}: {found.throughput:,.1f} inferences/s together{room}; {', '.join(times)}")
    return "\n".join(lines) + "\n"


def _top(analysis: Analysis, count: int) -> str:
    rows = [(profile, row) for profile in analysis.profiles for row in profile.ranked()]
    rows.sort(key=lambda pair: (not pair[0].judge.is_within(pair[1]), -(pair[0].judge.gain(pair[1]) or 0.0)))
    lines = ["*** Best of all models ***"]
    for profile, row in rows[:count]:
        lines.append(
            f"  {analysis.name(row.trial)}: {row.throughput:,.1f} inferences/s, {gain_text(profile, row.throughput)}"
        )
    return "\n".join(lines) + "\n"
