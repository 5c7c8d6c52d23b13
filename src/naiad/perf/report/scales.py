"""Scales of charts: where a value stands, which ticks an axis has, and how its numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Formatter = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from ``low`` to ``high`` on a line from the pixel ``start`` to the pixel ``end``."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value; a value beyond an end stands at that end."""
        low, high, found = self.low, self.high, min(max(value, self.low), self.high)
        if self.is_log:
            low, high, found = math.log(low), math.log(high), math.log(found)
        part = (found - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)


def nice_ticks(high: float, count: int = 5) -> list[float]:
    """Round numbers from 0 to the first one that is not below ``high``, about ``count`` steps."""
    if not high > 0 or math.isinf(high):
        return [0.0, 1.0]
    rough = high / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [number * step for number in range(math.ceil(high / step - 1e-9) + 1)]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from the last one that is not above ``low`` to the first one that is not below ``high``.

    Where there are few powers, their doubles and fivefolds are among them.
    """
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last) for factor in factors] + [10.0**last]
    # No more than one tick below the values, or above them, so that these fill the chart.
    start = max((tick for tick in ticks if tick <= low * 1.0001), default=ticks[0])
    end = min((tick for tick in ticks if tick >= high * 0.9999), default=ticks[-1])
    return [tick for tick in ticks if start <= tick <= end]


def spread(values: Sequence[float], scale: Scale, gap: float) -> list[float]:
    """Those of the values that stand at least ``gap`` pixels apart; the last one is always among them."""
    kept: list[float] = []
    for value in sorted(set(values), reverse=True):
        if not kept or abs(scale.place(kept[-1]) - scale.place(value)) >= gap:
            kept.append(value)
    return kept[::-1]


def is_wide(values: Sequence[float]) -> bool:
    """Whether values are better shown by their ratios: they are positive and grow eightfold or more."""
    return bool(values) and min(values) > 0 and max(values) >= 8 * min(values)


def short_number(value: float) -> str:
    """At most four signs and a power of a thousand: ``950``, ``12.5k``, ``3M``."""
    for power, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 1,500 is as short as 1.5k, and reads better.
        if abs(value) >= power * (10 if sign == "k" else 1):
            return f"{value / power:.3g}{sign}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def duration_tick(us: float) -> str:
    """A round number of microseconds: ``0``, ``50 µs``, ``2.5 ms``."""
    value, unit = _in_unit(us)
    return f"{value:.3g} {unit}" if us else "0"


def duration_text(us: float) -> str:
    """Microseconds in the unit that suits them: ``312 µs``, ``12.0 ms``."""
    value, unit = _in_unit(us)
    # Three digits also where the last ones are 0: a column of 12.5, 14.0 and 13.1 is read at a glance.
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def _in_unit(us: float) -> tuple[float, str]:
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if us >= length:
            return us / length, unit
    return us, "µs"
