"""Which levels are measured: all of a range, or those that a search under a latency limit asks for."""

from __future__ import annotations

from collections.abc import Generator

from naiad.perf.settings import LoadPlan

Search = Generator[float, bool, None]
"""Yields levels; is sent whether the last one kept the latency limit."""


def search_levels(plan: LoadPlan) -> Search:
    """The levels of a plan, in the order in which they are measured."""
    if plan.binary_search:
        return binary_levels(plan.levels.start, plan.levels.end, plan.levels.step)
    return linear_levels(plan.levels.start, plan.levels.end, plan.levels.step)


def single_level(value: float) -> Search:
    """One level."""
    yield value


def linear_levels(start: float, end: float, step: float) -> Search:
    """From the start to the end, until a level is over the limit; an end of 0 is never reached."""
    number = 0
    while True:
        level = start + number * step
        # Sums of steps such as 0.1 may pass the end by a little.
        if end and level > end + 1e-9 * max(abs(end), 1.0):
            return
        is_within = yield level
        if not is_within or step <= 0:
            return
        number += 1


def binary_levels(start: float, end: float, step: float) -> Search:
    """The start, which has to keep the limit, the end, and then the middle of what is left, as long as it is wide."""
    if not (yield start):
        return
    if (yield end):
        return
    low, high = start, end
    while high - low > step:
        middle = (low + high) / 2
        if float(start).is_integer() and float(end).is_integer() and float(step).is_integer():
            middle = float(int(middle))
        if (yield middle):
            low = middle
        else:
            high = middle
