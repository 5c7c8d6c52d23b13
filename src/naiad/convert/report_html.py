"""A conversion as one HTML file that needs nothing else."""

from __future__ import annotations

from html import escape
from typing import Final

from naiad.convert.report_text import HEADINGS, rows
from naiad.convert.results import Conversion

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { padding: .3em .7em; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left } .best { background: #e8f4e8 }
svg { max-width: 100% } pre { white-space: pre-wrap; background: #f6f6f6; padding: .8em }
"""
_BAR: Final = 26
_WIDTH: Final = 620


def report_html(conversion: Conversion) -> str:
    """The page: the table, a chart of the rates, and what failed."""
    body = [
        f"<h1>{escape(conversion.name)}</h1>",
        f"<p>{escape(conversion.model)}: a model of {escape(str(conversion.described.get('kind', '?')))}.",
        f"Best: <b>{escape(conversion.chosen or 'none')}</b> ({escape(conversion.reason)}).</p>",
        _table(conversion),
        "<h2>Inferences a second, best batch</h2>",
        _chart(conversion),
        "<h2>Batch sizes</h2>",
        _levels(conversion),
        *_failures(conversion),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(conversion.name)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _table(conversion: Conversion) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for text in HEADINGS)
    lines = []
    for row in rows(conversion):
        mark = ' class="best"' if row[0].endswith("*") else ""
        lines.append(f"<tr{mark}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>")
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>"


def _chart(conversion: Conversion) -> str:
    bars = [("source", conversion.source.best.rate)] if conversion.source and conversion.source.levels else []
    bars += [(r.target, r.measured.best.rate) for r in conversion.formats if r.measured and r.measured.levels]
    if not bars:
        return "<p>Nothing was measured.</p>"
    most = max(rate for _, rate in bars) or 1.0
    parts = []
    for place, (name, rate) in enumerate(bars):
        y, width = place * _BAR, max(1.0, rate / most * (_WIDTH - 300))
        parts.append(f'<text x="0" y="{y + 16}" font-size="13">{escape(name)}</text>')
        parts.append(f'<rect x="160" y="{y + 3}" width="{width:.1f}" height="{_BAR - 8}" fill="#3b78b5"/>')
        parts.append(f'<text x="{170 + width:.1f}" y="{y + 16}" font-size="13">{rate:.1f}</text>')
    return f'<svg viewBox="0 0 {_WIDTH} {len(bars) * _BAR}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'


def _levels(conversion: Conversion) -> str:
    heads = "<tr><th>format</th><th>batch</th><th>rate/s</th><th>p50 ms</th><th>p99 ms</th></tr>"
    found = [("source", conversion.source), *((r.target, r.measured) for r in conversion.formats)]
    lines = [
        f"<tr><td>{escape(name)}</td><td>{one.batch}</td><td>{one.rate:.1f}</td><td>{one.p50_ms:.3f}</td>"
        f"<td>{one.p99_ms:.3f}</td></tr>"
        for name, measured in found
        if measured
        for one in measured.levels
    ]
    return f"<table>{heads}{''.join(lines)}</table>"


def _failures(conversion: Conversion) -> list[str]:
    texts = [
        f"{result.target}: {result.failed_in} failed: {result.failure}\nrun it again: {result.script}"
        for result in conversion.formats
        if result.failure is not None
    ]
    texts += [
        f"{result.target} is not verified: {result.verified['reason']}"
        for result in conversion.formats
        if result.verified is not None and not result.verified["is_good"]
    ]
    texts += [f"not published: {conversion.publish_failure}"] if conversion.publish_failure else []
    texts += conversion.notes
    return ["<h2>What failed</h2>", *(f"<pre>{escape(text)}</pre>" for text in texts)] if texts else []
