"""The small parts of Prometheus' text format 0.0.4: labels, numbers and help texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

_PART_CHARS: Final = 1 << 14
"""How much text of a family is made at a time, which takes less than half a millisecond."""
_IN_A_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_A_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def label_text(labels: Mapping[str, str]) -> str:
    """Labels without their braces, in alphabetical order as the reference has them; "" without labels."""
    return ",".join([f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)])


@lru_cache(1 << 13)
def _escaped(value: str) -> str:
    # The same names of models stand in many labels of each page.
    return value.translate(_IN_A_LABEL)


def braced(*labels: str) -> str:
    """Parts of labels in braces, without the empty ones; "" when all are."""
    text = ",".join(filter(None, labels))
    return f"{{{text}}}" if text else ""


def number_text(value: float) -> str:
    """The text of a number, which reads back as the same float."""
    text = repr(float(value))
    return text[:-2] if text.endswith(".0") else _NOT_FINITE.get(text, text)


def help_text(description: str) -> str:
    """A description, escaped for a ``# HELP`` line."""
    return description.translate(_IN_A_HELP)


def family(name: str, kind: str, help_line: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    """A family with its samples, which are labels and values, in parts."""
    return block(name, kind, help_line, ((braced(label_text(labels)), value) for labels, value in samples))


def block(name: str, kind: str, help_line: str, samples: Iterable[tuple[str, float]]) -> Iterator[str]:
    """``family`` for labels that are text already, in their braces."""
    return rows_block(name, kind, help_line, (f"{name}{labels} {value}\n" for labels, value in samples))


def rows_block(name: str, kind: str, help_line: str, rows: Iterable[str]) -> Iterator[str]:
    """A family from the lines of its series, in parts of whole rows; each row is taken when its part is made."""
    yield f"# HELP {name} {help_line}\n# TYPE {name} {kind}\n"
    part: list[str] = []
    size = 0
    for row in rows:
        part.append(row)
        size += len(row)
        if size >= _PART_CHARS:
            yield "".join(part)
            part.clear()
            size = 0
    yield "".join(part)
