"""Plain text tables with ``+---+`` borders, as the log shows them at the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of left-aligned cells; a cell with several lines makes its row as high. Ends in a newline.

    Every row has one cell per heading.
    """
    cells = [[str(cell).splitlines() or [""] for cell in row] for row in (headings, *rows)]
    widths = [max(len(line) for row in cells for line in row[i]) for i in range(len(headings))]
    border = "+" + "+".join("-" * (width + 2) for width in widths) + "+\n"
    head, *body = (_row(row, widths) for row in cells)
    return border + head + border + "".join(body) + (border if body else "")


def _row(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    height = max(len(lines) for lines in cells)
    padded = [[*lines, *[""] * (height - len(lines))] for lines in cells]
    return "".join(_line(line, widths) for line in zip(*padded, strict=True))


def _line(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "| " + " | ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + " |\n"
