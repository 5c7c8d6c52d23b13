"""Labels of classes. The weights are random, so no label names a thing that an image could show."""

from __future__ import annotations


def class_labels(count: int, first: str = "") -> str:
    """A label file: a line for each class, ``CLASS 0`` and so on; ``first`` is the label of the first one."""
    labels = [f"CLASS {number}" for number in range(count)]
    if first:
        labels[0] = first
    return "".join(f"{label}\n" for label in labels)
