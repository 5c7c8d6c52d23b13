"""What a run found, as one table for people and as JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import load, machine
from .figures import Figure
from .settings import Settings

HEADINGS = ("figure", "value", "unit", "bound", "")


@dataclass(frozen=True, slots=True)
class Result:
    """One case: its figures, and in ``problem`` why it was skipped or failed."""

    case: str
    outcome: Literal["measured", "skipped", "failed"]
    figures: tuple[Figure, ...] = ()
    problem: str = ""


def missed(results: Sequence[Result]) -> list[Figure]:
    """The figures that do not keep their bound."""
    return [figure for result in results for figure in result.figures if figure.verdict == "missed"]


def table(results: Sequence[Result]) -> str:
    """All figures in one table, and below it why cases were skipped or failed."""
    rows = [HEADINGS, *(row for result in results for row in _rows(result))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    lines = [_line(row, widths) for row in rows]
    lines += [f"{result.case} {result.outcome}: {result.problem}" for result in results if result.problem]
    return "\n".join(lines)


def _rows(result: Result) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (figure.name, amount(figure.value), figure.unit, str(figure.bound or ""), _remark(figure))
        for figure in result.figures
    ]
    if result.outcome != "measured":
        rows.append((result.case, result.outcome, "", "", "see below"))
    return rows


def _remark(figure: Figure) -> str:
    return "  ".join(part for part in (figure.verdict, figure.note) if part)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, value, unit, bound, remark = row
    cells = (name.ljust(widths[0]), value.rjust(widths[1]), unit.ljust(widths[2]), bound.ljust(widths[3]), remark)
    return "  ".join(cells).rstrip()


def amount(value: float) -> str:
    """A number with as many digits as mean something."""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(path: Path, settings: Settings, results: Sequence[Result]) -> None:
    """Everything the table shows, with the machine and the versions it was measured on."""
    document = {
        "machine": machine.describe(),
        "load_generator": load.generator(),
        "rounds": settings.rounds,
        "seconds": settings.seconds,
        "quick": settings.quick,
        "yardstick": settings.yardstick is not None,
        "reference": settings.reference is not None,
        "cases": [_result_json(result) for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def _result_json(result: Result) -> dict[str, object]:
    return {
        "case": result.case,
        "outcome": result.outcome,
        "problem": result.problem,
        "figures": [_figure_json(figure) for figure in result.figures],
    }


def _figure_json(figure: Figure) -> dict[str, object]:
    return {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "bound": str(figure.bound or ""),
        "verdict": figure.verdict,
        "note": figure.note,
    }
