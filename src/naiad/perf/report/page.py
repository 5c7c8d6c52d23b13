"""The frame of an HTML page that needs nothing from elsewhere: style sheet, figures, tables."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

_LIGHT: Final = (
    "--bg:#f6f7f9;--panel:#fff;--ink:#1b2230;--muted:#5f6b7d;--line:#e3e7ee;--band:#2f6fde14;--warn:#8a5300;"
    "--warnbg:#fff4dc;--c0:#2f6fde;--c1:#d9730d;--c2:#2c8f57;--c3:#8457c9;--c4:#cf3f58;--c5:#0f8b9a;--c6:#a3771a;"
    "--c7:#7d8797;--c8:#d66ba0"
)
_DARK: Final = (
    "--bg:#12161d;--panel:#1a202a;--ink:#e6eaf1;--muted:#98a3b5;--line:#2c3543;--band:#6ea0ff1f;--warn:#ffce7a;"
    "--warnbg:#3a2c10;--c0:#6ea0ff;--c1:#f39a4a;--c2:#5cc48a;--c3:#b593f0;--c4:#f27d90;--c5:#4fc3d2;--c6:#d9b45c;"
    "--c7:#9aa5b6;--c8:#ef9dc5"
)
_STYLE: Final = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
body{{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}}
main{{max-width:1320px;margin:0 auto;padding:28px 24px 56px}}
h1{{font-size:26px;line-height:1.25;margin:0 0 2px}}
h2{{font-size:18px;margin:36px 0 12px}}
p,ul{{margin:0 0 8px}}
ul{{padding-left:20px}}
code{{font:13px/1.5 ui-monospace,Consolas,monospace;overflow-wrap:anywhere}}
.sub{{color:var(--muted)}}
.warn{{background:var(--warnbg);color:var(--warn);border-radius:6px;padding:8px 12px;margin:12px 0 0}}
.tiles{{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin:20px 0}}
.tiles div,figure,.panel{{background:var(--panel);border:1px solid var(--line);border-radius:8px}}
.tiles div{{padding:12px 14px}}
.tiles b{{display:block;font-size:21px;font-weight:600;line-height:1.3}}
.tiles span{{color:var(--muted);font-size:13px}}
.charts{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:16px}}
.charts figure:only-child{{max-width:760px}}
figure{{margin:0;padding:12px 14px 6px}}
figcaption{{font-weight:600}}
figcaption small{{font-weight:400;color:var(--muted)}}
.panel{{padding:12px 14px;overflow-x:auto}}
svg{{display:block;width:100%;height:auto}}
svg text{{fill:var(--ink);font:12px system-ui,-apple-system,"Segoe UI",sans-serif}}
svg .tick{{fill:var(--muted)}}
svg .label{{fill:var(--muted);text-anchor:middle}}
svg .end{{text-anchor:end}}
svg .middle{{text-anchor:middle}}
svg .grid{{stroke:var(--line)}}
svg .axis{{stroke:var(--muted)}}
svg .rule{{stroke:var(--line);stroke-dasharray:3 3}}
svg .band{{fill:var(--band)}}
svg .line{{fill:none;stroke-width:2;stroke-linejoin:round}}
svg .dot{{stroke-width:2}}
svg .hit{{fill:transparent}}
svg .hit:hover{{fill:var(--band);stroke:var(--muted)}}
svg rect:hover{{opacity:.85}}
svg polyline.over{{fill:none;stroke:var(--ink);stroke-width:2;stroke-dasharray:5 3}}
svg circle.over{{fill:var(--panel);stroke:var(--ink);stroke-width:2}}
.legend{{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--muted);margin:2px 0 4px}}
.legend i{{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px}}
.legend i.over{{height:0;border-top:2px dashed var(--ink);border-radius:0;vertical-align:middle}}
table{{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}}
th,td{{padding:5px 7px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}}
th{{color:var(--muted);font-weight:600;vertical-align:bottom;white-space:normal}}
th:first-child,td:first-child,.text{{text-align:left}}
tr:last-child td{{border-bottom:0}}
td.text{{white-space:normal;min-width:9.5em}}
.text:not(:first-child){{padding-left:20px}}
details{{margin:0 0 14px}}
summary{{cursor:pointer;font-weight:600;padding:6px 0}}
summary span{{font-weight:400;color:var(--muted)}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:0}}
dt{{color:var(--muted)}}
dd{{margin:0;overflow-wrap:anywhere}}
.empty{{color:var(--muted);padding:24px 0}}
@media (max-width:560px){{main{{padding:18px 12px 40px}}h1{{font-size:22px}}svg text{{font-size:18px}}
svg text[transform]{{display:none}}}}
@media print{{body{{background:#fff}}details>*{{display:block}}figure{{break-inside:avoid}}}}
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole page."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    content = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>\n{content}\n</main></body></html>\n'


def figure(title: str, note: str, *content: str) -> str:
    """One chart with its title and a note behind it."""
    small = f" <small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>{''.join(content)}</figure>"


def charts(figures: Sequence[str]) -> str:
    """Figures side by side, as many as fit."""
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def tiles(values: Sequence[tuple[str, str]]) -> str:
    """Few large values, each with what it is."""
    items = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in values)
    return f'<div class="tiles">{items}</div>' if items else ""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: Sequence[int] = ()) -> str:
    """A table of figures; the columns ``texts`` hold words, which are set to the left and wrapped."""

    def cells(tag: str, values: Sequence[str]) -> str:
        kinds = (' class="text"' if place in texts else "" for place in range(len(values)))
        return "".join(f"<{tag}{kind}>{escape(value)}</{tag}>" for value, kind in zip(values, kinds, strict=True))

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    top = f"<thead><tr>{cells('th', header)}</tr></thead>"
    return f'<div class="panel"><table>{top}<tbody>{lines}</tbody></table></div>'


def pairs(values: Sequence[tuple[str, str]]) -> str:
    """Names and their values, one on each line."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in values)
    return f'<div class="panel"><dl>{items}</dl></div>'


def bullets(lines: Sequence[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{escape(line.strip())}</li>' for line in lines)}</ul>" if lines else ""
