"""A conversion as a table for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final

from naiad.convert.results import BatchLevels, Conversion, FormatResult

HEADINGS: Final = (
    *("format", "state", "size MB", "max abs", "max rel", "batch 1: p50 ms", "p99 ms", "best batch", "rate/s", "gain"),
    *("RSS MB", "made in s"),
)


def report_text(conversion: Conversion, *, has_files: bool = True) -> str:
    """All formats, why the others failed, and the best one.

    Args:
        has_files: whether the folder with scripts and worst samples is still there.
    """
    lines = [f"{conversion.model} ({conversion.described.get('kind', '?')}), {conversion.seconds:.0f} s in all", ""]
    lines += _table([HEADINGS, *rows(conversion)])
    for result in conversion.formats:
        if result.failure is not None:
            lines += ["", *_wrapped(f"{result.target}: {result.failed_in} failed: {result.failure}")]
            lines += [f"  run it again: {result.script}"] if result.script and has_files else []
        elif result.verified is not None and not result.verified["is_good"]:
            lines += ["", *_wrapped(f"{result.target} is not verified: {result.verified['reason']}")]
            lines += [f"  the worst sample: {result.verified['worst_file']}"] if has_files else []
    lines += ["", *(f"note: {note}" for note in conversion.notes)] if conversion.notes else []
    named = f"{conversion.chosen} ({conversion.reason})" if conversion.chosen else f"none; {conversion.reason}"
    lines += ["", f"best: {named}"]
    if conversion.published:
        lines.append(f"published: {conversion.published}")
    if conversion.publish_failure:
        lines += _wrapped(f"not published: {conversion.publish_failure}")
    return "\n".join(lines) + "\n"


def rows(conversion: Conversion) -> list[tuple[str, ...]]:
    """The table's rows: the source, then every format that was asked for."""
    found = [("source", "", *["-"] * 3, *_measured(conversion.source, conversion.source), "-")]
    for result in conversion.formats:
        if result.is_wanted:
            found.append(_row(result, conversion))
    return found


def _row(result: FormatResult, conversion: Conversion) -> tuple[str, ...]:
    verified = result.verified
    name = f"{result.target} *" if result.target == conversion.chosen else result.target
    return (
        name,
        result.state,
        f"{result.size_bytes / 1e6:.2f}" if result.is_made else "-",
        f"{verified['max_abs']:.2g}" if verified else "-",
        f"{verified['max_rel']:.2g}" if verified else "-",
        *_measured(result.measured, conversion.source),
        f"{result.seconds:.1f}",
    )


def _measured(found: BatchLevels | None, source: BatchLevels | None) -> tuple[str, ...]:
    if found is None or not found.levels:
        return ("-",) * 6
    first, best = found.first, found.best
    gain = f"{source.first.p50_ms / first.p50_ms:.2f}x" if source and source.levels else "-"
    return (
        f"{first.p50_ms:.3f}",
        f"{first.p99_ms:.3f}",
        str(best.batch),
        f"{best.rate:.1f}",
        gain,
        f"{found.rss_bytes / 1e6:.0f}",
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, subsequent_indent="  ", break_long_words=False)
