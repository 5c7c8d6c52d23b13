"""Trees padded to one depth, which all rows go down together, one level at a time.

A node's children lie at twice its place in the next level, and a leaf above the last level has copies of itself below.
So a step is the same few operations of numpy for all rows and trees, and needs half the time of treelite's
``predict_leaf``, which goes down each tree for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

# More is slower than treelite, as most of it is padding.
_MOST_LEVELS: Final = 10
_MOST_LEAVES: Final = 1 << 20
# Rows times trees that are looked at together, so that what is computed of them stays in the processor's cache.
_BLOCK: Final = 1 << 15
_FIELDS: Final = ("cleft", "cright", "split_index", "threshold", "cmp", "node_type")
# Treelite's numbers.
_LESS: Final = 2
_LESS_OR_EQUAL: Final = 3
_CATEGORICAL: Final = 2


@dataclass(frozen=True, slots=True)
class TreeLevel:
    """The nodes of all trees in one level, tree by tree: what is compared with what."""

    features: Array
    thresholds: Array


@dataclass(frozen=True, slots=True)
class PaddedTrees:
    """Trees of one depth.

    Attributes:
        levels: from the roots on.
        leaf_places: [trees * 2 ** depth], the place of each leaf of the padded trees among the nodes of all trees.
        trees: how many.
        goes_right: numpy's comparison of an element with a threshold that sends it to the right.
        dtype: of the elements that are compared.
    """

    levels: tuple[TreeLevel, ...]
    leaf_places: Array
    trees: int
    goes_right: np.ufunc
    dtype: Any

    def leaves(self, rows: Array) -> Array:
        """The places of the leaves of rows ([rows, features], without NaN): intp [trees, rows]."""
        found = np.empty((self.trees, len(rows)), np.intp)
        step = max(1, _BLOCK // self.trees)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            found[:, start : start + step] = self._walk(np.ascontiguousarray(block.T, self.dtype))
        return found

    def _walk(self, columns: Array) -> Array:
        """The places of the leaves of a few rows, which come as columns ([features, rows])."""
        count = columns.shape[1]
        elements, numbers = columns.reshape(-1), np.arange(count)
        shape = (self.trees, count)
        at = np.repeat(np.arange(self.trees), count).reshape(shape)
        place, right = np.empty(shape, np.intp), np.empty(shape, np.bool_)
        element, threshold = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        for level in self.levels:
            # With "clip" numpy writes to ``out`` without a buffer; all places are inside.
            level.features.take(at, out=place, mode="clip")
            place *= count
            place += numbers
            elements.take(place, out=element, mode="clip")
            level.thresholds.take(at, out=threshold, mode="clip")
            self.goes_right(element, threshold, out=right)
            at += at
            at += right
        found: Array = self.leaf_places.take(at, mode="clip")
        return found


def padded(handle: Any, trees: list[Any], first: Array) -> PaddedTrees | None:
    """The padded trees of a model of treelite; None where they would be too large, or a split is no plain comparison.

    Args:
        handle: the model, whose nodes were checked.
        trees: the accessors of its trees.
        first: the place of the first node of each tree among those of all trees.
    """
    fields = [{name: tree.get_field(name) for name in _FIELDS} for tree in trees]
    inner = np.concatenate([field["cmp"][field["cleft"] >= 0] for field in fields])
    kinds = set(inner.tolist())
    if kinds - {_LESS} and kinds - {_LESS_OR_EQUAL}:
        return None
    if any(np.any(field["node_type"] == _CATEGORICAL) for field in fields):
        return None
    made = []
    for field in fields:
        levels = _levels(field)
        if levels is None:
            return None
        made.append(levels)
    depth = max(len(levels) for levels in made) - 1
    if len(trees) << depth > _MOST_LEAVES:
        return None
    dtype = np.dtype(handle.input_type)
    return PaddedTrees(
        levels=tuple(_level(fields, made, number, dtype) for number in range(depth)),
        leaf_places=np.concatenate([_spread(levels[-1], depth) + at for levels, at in zip(made, first, strict=True)]),
        trees=len(trees),
        goes_right=np.greater_equal if _LESS in kinds else np.greater,
        dtype=dtype,
    )


def _levels(field: dict[str, Array]) -> list[Array] | None:
    """The nodes of each level of one padded tree, the leaves last; None for a tree that is too deep."""
    levels = [np.zeros(1, np.intp)]
    while (field["cleft"][levels[-1]] >= 0).any():
        if len(levels) > _MOST_LEVELS:
            return None
        last = levels[-1]
        is_leaf = field["cleft"][last] < 0
        below = (np.where(is_leaf, last, field[side][last]) for side in ("cleft", "cright"))
        levels.append(np.stack(list(below), axis=1).reshape(-1).astype(np.intp))
    return levels


def _level(fields: list[dict[str, Array]], made: list[list[Array]], number: int, dtype: Any) -> TreeLevel:
    features, thresholds = [], []
    for field, levels in zip(fields, made, strict=True):
        nodes = levels[number] if number < len(levels) else _spread(levels[-1], number)
        is_leaf = field["cleft"][nodes] < 0
        features.append(np.where(is_leaf, 0, field["split_index"][nodes]))
        # Either child of a leaf is the leaf itself.
        thresholds.append(np.where(is_leaf, 0, field["threshold"][nodes]))
    return TreeLevel(np.concatenate(features).astype(np.intp), np.concatenate(thresholds).astype(dtype))


def _spread(leaves: Array, depth: int) -> Array:
    """The leaves of a tree as those of a tree that is ``depth`` levels deep."""
    found: Array = np.repeat(leaves, (1 << depth) // len(leaves))
    return found
