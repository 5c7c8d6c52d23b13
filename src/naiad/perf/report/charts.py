"""Charts as SVG, without scripts: lines, and stacked bars with a line. Colours come from the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

from naiad.perf.report.scales import Formatter, Scale, nice_ticks, ratio_ticks, short_number, spread

WIDTH: Final = 620
HEIGHT: Final = 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 18, 14, 44
COLOURS: Final = 9
"""How many colours the style sheet has: ``--c0`` and so on."""
_WIDE: Final = 40
"""Beyond so many times the least value the least ones lie flat on a linear axis."""
_DASHES: Final = ("", "7 4", "2 3", "10 3 2 3")


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a line.

    Attributes:
        title: shown when the pointer rests on it.
        label: written beside it.
        is_hollow: drawn as a ring: a value that is to be doubted.
    """

    x: float
    y: float
    title: str = ""
    label: str = ""
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One line; the lines of a chart differ in colour, and in dashes beyond the last colour."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    has_dots: bool = True


@dataclass(frozen=True, slots=True)
class Axes:
    """What stands along the axes.

    Attributes:
        x_ticks: the values that may have a tick; round numbers when empty.
        may_show_ratios: whether y may be logarithmic, which it is when the values differ by much.
        bands: ranges of x that are shaded, each with a title.
        rules: values of x that have a thin line.
    """

    x_label: str
    y_label: str
    x_format: Formatter = short_number
    y_format: Formatter = short_number
    x_ticks: Sequence[float] = ()
    is_log: bool = False
    may_show_ratios: bool = False
    bands: Sequence[tuple[float, float, str]] = ()
    rules: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """One stacked bar: parts by name from the bottom up, and the value of the line above it."""

    label: str
    parts: dict[str, float]
    line: float
    titles: dict[str, str] = field(default_factory=dict)
    line_title: str = ""


def line_chart(series: Sequence[Series], axes: Axes) -> str:
    """Lines over a common x; y begins at 0, or shows ratios where the values differ by much."""
    points = [point for line in series for point in line.points]
    if not points:
        return _empty()
    xs = [point.x for point in points]
    x = _x_scale(xs, axes)
    ys = [point.y for point in points]
    is_ratio = axes.may_show_ratios and min(ys) > 0 and max(ys) > _WIDE * min(ys)
    ticks = ratio_ticks(min(ys), max(ys)) if is_ratio else nice_ticks(max(ys))
    y = Scale(ticks[0], ticks[-1], HEIGHT - _BOTTOM, _TOP, is_ratio)
    parts = _bands(axes, x)
    parts += _y_axis(ticks, y, axes.y_label, axes.y_format)
    x_ticks = axes.x_ticks or nice_ticks(max(xs), 6)
    within = [tick for tick in x_ticks if x.low <= tick <= x.high]
    parts += _x_axis(spread(within, x, 40), x, axes.x_label, axes.x_format)
    for line in series:
        parts += _line(line, x, y)
    return _svg(parts)


def bar_chart(bars: Sequence[Bar], colours: dict[str, int], y_label: str, line_label: str, y_format: Formatter) -> str:
    """Stacked bars with a line over them, which has the axis on the right."""
    if not bars:
        return _empty()
    right = _LEFT
    width = (WIDTH - _LEFT - right) / len(bars)
    ticks = nice_ticks(max(sum(bar.parts.values()) for bar in bars))
    y = Scale(0, ticks[-1], HEIGHT - _BOTTOM, _TOP)
    parts = _y_axis(ticks, y, y_label, y_format, right)
    line_ticks = nice_ticks(max(bar.line for bar in bars))
    line_y = Scale(0, line_ticks[-1], HEIGHT - _BOTTOM, _TOP)
    for tick in line_ticks:
        at = line_y.place(tick) + 4
        parts.append(f'<text x="{WIDTH - right + 8}" y="{at:.1f}" class="tick">{escape(short_number(tick))}</text>')
    parts.append(_turned(WIDTH - 3, line_label))
    places = []
    shown = {place for place in range(len(bars)) if place % max(len(bars) * 44 // (WIDTH - 2 * _LEFT), 1) == 0}
    for place, bar in enumerate(bars):
        middle = _LEFT + width * (place + 0.5)
        parts += _stack(bar, colours, middle, min(width * 0.62, 72), y)
        if place in shown:
            parts.append(_x_tick(middle, bar.label))
        places.append((middle, line_y.place(bar.line), bar.line_title))
    parts.append(f'<polyline class="over" points="{_path((at, high) for at, high, _ in places)}"/>')
    parts += [
        f'<circle class="over" cx="{at:.1f}" cy="{high:.1f}" r="4"><title>{escape(title)}</title></circle>'
        for at, high, title in places
    ]
    return _svg(parts)


def legend(names: Sequence[tuple[str, int]], is_over: str = "") -> str:
    """Names with their colours, for lines or parts; ``is_over`` names the line over bars."""
    items = [f'<span><i style="{_swatch(colour)}"></i>{escape(name)}</span>' for name, colour in names]
    items += [f'<span><i class="over"></i>{escape(is_over)}</span>'] if is_over else []
    return f'<div class="legend">{"".join(items)}</div>'


def _swatch(colour: int) -> str:
    if colour < COLOURS:
        return f"background:var(--c{colour})"
    name = f"var(--c{colour % COLOURS})"
    return f"background:repeating-linear-gradient(90deg,{name} 0 4px,transparent 4px 6px)"


def _x_scale(xs: Sequence[float], axes: Axes) -> Scale:
    low, high = (min(xs), max(xs)) if axes.x_ticks else (0.0, max(xs))
    if low == high:
        low, high = (low / 2, high * 2) if low > 0 else (low - 1, high + 1)
    is_log = axes.is_log and low > 0
    inset = 14 if axes.x_ticks else 0
    return Scale(low, high, _LEFT + inset, WIDTH - _RIGHT - inset, is_log)


def _line(line: Series, x: Scale, y: Scale) -> list[str]:
    colour = f"var(--c{line.colour % COLOURS})"
    dash = _DASHES[line.colour // COLOURS % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    places = [(x.place(point.x), y.place(point.y), point) for point in line.points]
    parts = [f'<polyline class="line" style="stroke:{colour}"{dashed} points="{_path((a, b) for a, b, _ in places)}"/>']
    for at, high, point in places:
        title = f"<title>{escape(point.title)}</title>" if point.title else ""
        if line.has_dots:
            fill = "var(--panel)" if point.is_hollow else colour
            parts.append(
                f'<circle class="dot" cx="{at:.1f}" cy="{high:.1f}" r="4" style="fill:{fill};stroke:{colour}"/>'
            )
        # A wide, invisible target: nobody meets a dot of 4 pixels.
        parts.append(f'<circle class="hit" cx="{at:.1f}" cy="{high:.1f}" r="9">{title}</circle>' if title else "")
        if point.label:
            # Beside the right edge a label would be cut off.
            kind, left = ("tick end", at - 7) if at > WIDTH - 60 else ("tick", at + 7)
            above = max(high - 7, 10)
            parts.append(f'<text class="{kind}" x="{left:.1f}" y="{above:.1f}">{escape(point.label)}</text>')
    return parts


def _stack(bar: Bar, colours: dict[str, int], middle: float, width: float, y: Scale) -> list[str]:
    parts, reached = [], 0.0
    for name, value in bar.parts.items():
        low, high = y.place(reached), y.place(reached + value)
        reached += value
        if low - high < 0.05:
            continue
        title = escape(bar.titles.get(name, name))
        parts.append(
            f'<rect x="{middle - width / 2:.1f}" y="{high:.1f}" width="{width:.1f}" height="{low - high:.1f}"'
            f' style="fill:var(--c{colours[name] % COLOURS})"><title>{title}</title></rect>'
        )
    return parts


def _bands(axes: Axes, x: Scale) -> list[str]:
    height = HEIGHT - _BOTTOM - _TOP
    parts = []
    for low, high, title in axes.bands:
        start, end = x.place(low), x.place(high)
        parts.append(
            f'<rect class="band" x="{start:.1f}" y="{_TOP}" width="{max(end - start, 0):.1f}" height="{height}">'
            f"<title>{escape(title)}</title></rect>"
        )
    for value in axes.rules:
        at = x.place(value)
        parts.append(f'<line class="rule" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
    return parts


def _y_axis(ticks: Sequence[float], y: Scale, label: str, formatter: Formatter, right: float = _RIGHT) -> list[str]:
    parts = [_turned(12, label)]
    for tick in ticks:
        at = y.place(tick)
        kind = "axis" if tick == ticks[0] else "grid"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{WIDTH - right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 8}" y="{at + 4:.1f}">{escape(formatter(tick))}</text>')
    return parts


def _x_axis(ticks: Sequence[float], x: Scale, label: str, formatter: Formatter) -> list[str]:
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    label_text = f'<text class="label" x="{middle:.1f}" y="{HEIGHT - 6}">{escape(label)}</text>'
    return [label_text, *(_x_tick(x.place(tick), formatter(tick)) for tick in ticks)]


def _x_tick(at: float, text: str) -> str:
    return f'<text class="tick middle" x="{at:.1f}" y="{HEIGHT - _BOTTOM + 17}">{escape(text)}</text>'


def _turned(at: float, text: str) -> str:
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    return f'<text class="label" transform="translate({at} {middle:.1f}) rotate(-90)">{escape(text)}</text>'


def _path(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{at:.1f},{high:.1f}" for at, high in places)


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'


def _empty() -> str:
    return '<p class="empty">No requests were measured.</p>'
