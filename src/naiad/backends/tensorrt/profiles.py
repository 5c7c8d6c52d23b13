"""Optimisation profiles: which shapes a plan was built for, and which profile a batch uses. Without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from naiad.backends.shared.signature import shape_text
from naiad.errors import InvalidArgumentError

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShapeRange:
    """The smallest, the best and the largest shape of one input."""

    smallest: Shape
    best: Shape
    largest: Shape

    def holds(self, shape: Shape) -> bool:
        """Whether the plan takes an input of that shape."""
        return len(shape) == len(self.largest) and all(
            low <= size <= high for low, size, high in zip(self.smallest, shape, self.largest, strict=True)
        )

    def distance(self, shape: Shape) -> int:
        """How far a shape is from the best one."""
        return sum(abs(size - best) for size, best in zip(shape, self.best, strict=True))

    def __str__(self) -> str:
        return f"{shape_text(self.smallest)} to {shape_text(self.largest)}"


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimisation profile of a plan: its number, and the range of each input by name."""

    number: int
    ranges: Mapping[str, ShapeRange]

    @property
    def most_rows(self) -> int:
        """The largest first axis that all inputs have."""
        return min((found.largest[0] for found in self.ranges.values() if found.largest), default=0)

    def holds(self, shapes: Mapping[str, Shape]) -> bool:
        """Whether every input fits."""
        return all(self.ranges[name].holds(shape) for name, shape in shapes.items())


def choose(profiles: Sequence[Profile], shapes: Mapping[str, Shape]) -> Profile:
    """The profile, of those that take these shapes, whose best shapes are the nearest.

    Raises:
        InvalidArgumentError: none takes them.
    """
    # Most plans have one, and what runs with it has been checked against the configuration.
    fitting = [profile for profile in profiles if profile.holds(shapes)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise InvalidArgumentError(f"tensorrt: {_unfit(profiles, shapes)}")
    return min(fitting, key=lambda found: sum(found.ranges[n].distance(s) for n, s in shapes.items()))


def _unfit(profiles: Iterable[Profile], shapes: Mapping[str, Shape]) -> str:
    found = list(profiles)
    wrong = [name for name, shape in shapes.items() if not any(p.ranges[name].holds(shape) for p in found)]
    # Each input may fit some profile, and no profile all of them.
    names = wrong or list(shapes)
    ranges = "; ".join(
        f"input '{name}' has the shape {shape_text(shapes[name])}, and the plan takes "
        + " or ".join(dict.fromkeys(str(profile.ranges[name]) for profile in found))
        for name in names
    )
    return ranges if wrong else f"no optimisation profile takes all inputs: {ranges}"
