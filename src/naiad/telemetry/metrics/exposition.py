"""The small parts of Prometheus' text format 0.0.4: labels, numbers and help texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_IN_A_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_IN_A_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_NOT_FINITE = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}


def label_text(labels: Mapping[str, str]) -> str:
    """Labels without their braces, in alphabetical order as the reference has them; "" without labels."""
    return ",".join(f'{name}="{labels[name].translate(_IN_A_LABEL)}"' for name in sorted(labels))


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


def family(name: str, kind: str, help_line: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """A family with its samples: their labels and values."""
    lines = "".join(f"{name}{braced(label_text(labels))} {value}\n" for labels, value in samples)
    return f"# HELP {name} {help_line}\n# TYPE {name} {kind}\n{lines}"
