"""By how much the outputs of a format differ from those of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.formats import Tolerance

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Difference:
    """The outputs of any number of samples, compared.

    Attributes:
        max_abs: the greatest difference of two elements.
        max_rel: the greatest one over the greatest magnitude of its output in that sample.
        cosine: the least cosine similarity of an output.
        agreeing, rows: how many rows of the first output have their greatest element at the same place, of how many.
        worst: the index of the sample with the greatest relative difference.
        is_within: whether every output of every sample was within the tolerance.
    """

    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float = 1.0
    agreeing: int = 0
    rows: int = 0
    worst: int = 0
    is_within: bool = True

    @property
    def top1(self) -> float:
        """The part of the rows whose greatest element is at the same place; 1 without rows."""
        return self.agreeing / self.rows if self.rows else 1.0

    def add(
        self, index: int, wanted: Mapping[str, Array], found: Mapping[str, Array], tolerance: Tolerance | None
    ) -> None:
        """Compare the outputs for one sample.

        Raises:
            StepError: they have other shapes, or NaN.
        """
        for place, (name, one) in enumerate(wanted.items()):
            other = found[name]
            if _trimmed(one.shape) == _trimmed(other.shape):
                # Formats of trees have an axis for a single value.
                other = other.reshape(one.shape)
            if one.shape != other.shape:
                raise StepError(
                    f"output '{name}' for sample {index} has the shape {list(other.shape)}, and the source's has "
                    f"{list(one.shape)}",
                    "a size became fixed in the conversion (take sizes from the inputs' shapes in the model's code), "
                    "or it depends on values that this format rounds otherwise",
                )
            self._add_output(index, name, one, other, tolerance)
            if place == 0 and one.ndim >= 2 and one.shape[-1] > 1 and one.size:
                same = np.argmax(one, axis=-1) == np.argmax(other, axis=-1)
                self.agreeing += int(same.sum())
                self.rows += int(same.size)

    def _add_output(self, index: int, name: str, one: Array, other: Array, tolerance: Tolerance | None) -> None:
        if not one.size:
            return
        if one.dtype.kind in "SUO":
            is_same = bool((one.astype(str) == other.astype(str)).all())
            self._count(index, 0.0 if is_same else 1.0, 0.0 if is_same else 1.0, tolerance)
            return
        wanted, found = one.astype(np.float64), other.astype(np.float64)
        if not np.isfinite(found).all():
            bad = int((~np.isfinite(found)).sum())
            raise StepError(
                f"output '{name}' for sample {index} has {bad} elements that are NaN or infinity",
                "the format overflows: use one of more bits",
            )
        gap = float(np.abs(wanted - found).max())
        scale = float(np.abs(wanted).max())
        self._count(index, gap, gap / scale if scale else gap, tolerance)
        norms = float(np.linalg.norm(wanted) * np.linalg.norm(found))
        if norms:
            self.cosine = min(self.cosine, float(np.vdot(wanted, found)) / norms)

    def _count(self, index: int, absolute: float, relative: float, tolerance: Tolerance | None) -> None:
        if relative > self.max_rel:
            self.max_rel, self.worst = relative, index
        self.max_abs = max(self.max_abs, absolute)
        if tolerance is not None and absolute > tolerance.absolute and relative > tolerance.relative:
            self.is_within = False


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without the axes of one element at its end; its first axis stays."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape
