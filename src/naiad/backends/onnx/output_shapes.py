"""The shapes that the outputs of a run will have, where the graph says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Axis = int | tuple[str, int]
"""A fixed number of elements, or that of an axis of an input, by the input's name."""


class OutputShapes:
    """Shapes of outputs whose every axis has a fixed size, or the name of an axis of an input.

    Args:
        session: an ``InferenceSession``. Its graph promises the names; the framework does not check them.
    """

    def __init__(self, session: Any) -> None:
        inputs = session.get_inputs()
        named = {axis: (node.name, n) for node in inputs for n, axis in enumerate(node.shape) if isinstance(axis, str)}
        found = ((node.name, _axes(node.shape, named)) for node in session.get_outputs())
        self._axes: dict[str, tuple[Axis, ...]] = {name: axes for name, axes in found if axes is not None}

    def of(self, inputs: Mapping[str, Any], outputs: Iterable[str]) -> list[tuple[int, ...]] | None:
        """The shapes of these outputs of a run with these arrays; None if one of them is not known."""
        try:
            return [
                tuple([axis if isinstance(axis, int) else inputs[axis[0]].shape[axis[1]] for axis in self._axes[name]])
                for name in outputs
            ]
        except (KeyError, IndexError):
            # Known after the run only, or an input that may be left out.
            return None


def _axes(shape: Sequence[Any], named: Mapping[str, Axis]) -> tuple[Axis, ...] | None:
    """The axes of an output; None if the size of one is not known before a run. A scalar has none."""
    axes = [axis if isinstance(axis, int) else named.get(axis) for axis in shape]
    return None if None in axes else tuple(axis for axis in axes if axis is not None)
