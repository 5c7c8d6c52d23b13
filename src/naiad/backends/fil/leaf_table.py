"""The scores of a forest, looked up by the leaves of its trees.

Treelite's ``predict`` allocates memory twice for each tree and row, which takes longer than the way through the tree.
Its ``predict_leaf`` does not, and what is left is a look-up and a sum. Where ``PaddedTrees`` can, they find the leaves
faster still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from naiad.backends.fil.padded_trees import PaddedTrees, padded

Array = np.ndarray[Any, Any]
Rule = Callable[[Array], Array]

# Far beyond what the order of a sum changes.
_TOLERANCE: Final = 1e-4
_PADDED_ROWS: Final = 16
"""Fewer rows are faster in treelite, which has less to begin with."""
_PADDED_THREADS: Final = 3
"""Treelite is faster on more threads; the padded trees take one."""
_MOST_FEATURES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class LeafTable:
    """What the leaves of a forest are worth.

    Attributes:
        handle: treelite's model.
        trees: the same trees, padded; None where they cannot be.
        values: [nodes of all trees], in the type of treelite's scores.
        first: [trees, 1], the place in ``values`` where the nodes of each tree begin.
        columns: the trees whose sum is each column of the scores.
        shares: [columns], what the sums are divided by: the number of trees where a forest has their mean.
        base: [columns], what the sums begin with, as in XGBoost.
        rule: makes the scores ([rows, columns]) of the sums.
    """

    handle: Any
    trees: PaddedTrees | None
    values: Array
    first: Array
    columns: tuple[Array | slice, ...]
    shares: Array | None
    base: Array
    rule: Rule

    def scores(self, rows: Array, threads: int) -> Array:
        """The scores [rows, columns] of rows [rows, features]."""
        # Trees come first, so that their values are added one after another, as the libraries do.
        values = self.values.take(self._leaves(rows, threads))
        sums = np.empty((len(rows), len(self.columns)), self.values.dtype)
        for column, trees in enumerate(self.columns):
            np.add.reduce(values[trees], axis=0, out=sums[:, column], initial=self.base[column])
        if self.shares is not None:
            sums /= self.shares
        return self.rule(sums)

    def _leaves(self, rows: Array, threads: int) -> Array:
        """The place in ``values`` that each row ends in, in each tree: intp [trees, rows]."""
        is_large = len(rows) >= _PADDED_ROWS and threads <= _PADDED_THREADS
        # NaN goes to the side that each node says, which the padded trees do not know.
        if self.trees is not None and is_large and not np.isnan(rows).any():
            return self.trees.leaves(rows)
        import treelite

        leaves: Array = treelite.gtil.predict_leaf(self.handle, rows, nthread=threads)
        places = leaves.T.astype(np.intp, order="C")
        places += self.first
        return places


def table_of(handle: Any, columns: int, reference: Callable[[Array, int], Array]) -> LeafTable | None:
    """The table of a forest; None for one with leaves of several values, or whose scores it would not give.

    Args:
        columns: of the scores.
        reference: treelite's own scores, with which those of the table are compared.
    """
    header = handle.get_header_accessor()
    rule = _rule(header)
    trees = [handle.get_tree_accessor(number) for number in range(handle.num_tree)]
    if rule is None or not trees or handle.num_feature > _MOST_FEATURES:
        return None
    if any(len(tree.get_field("leaf_vector")) for tree in trees):
        return None
    owners = header.get_field("target_id" if int(header.get_field("num_target")[0]) > 1 else "class_id")
    chosen = [np.flatnonzero(owners == column) for column in range(columns)]
    base = header.get_field("base_scores")
    if sum(map(len, chosen)) != len(trees) or len(base) != columns:
        return None
    shares = np.array([len(found) for found in chosen]) if header.get_field("average_tree_output")[0] else None
    sizes = [int(tree.get_field("num_nodes")[0]) for tree in trees]
    first = np.cumsum([0, *sizes[:-1]], dtype=np.intp)
    table = LeafTable(
        handle=handle,
        trees=padded(handle, trees, first),
        values=np.concatenate([tree.get_field("leaf_value") for tree in trees]).astype(handle.output_type),
        first=first[:, None],
        columns=(slice(None),) if columns == 1 else tuple(chosen),
        shares=None if shares is None else shares.astype(handle.output_type),
        base=(base if shares is None else base * shares).astype(handle.output_type),
        rule=rule,
    )
    return table if _agrees(table, handle.num_feature, reference) else None


def _agrees(table: LeafTable, features: int, reference: Callable[[Array, int], Array]) -> bool:
    """Whether a table gives what treelite does, whatever a version of it means by these fields."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((_PADDED_ROWS, features)).astype(np.float32)
    rows[0] = 0
    several = [rows, np.full((2, features), np.nan, np.float32)]
    return all(
        np.allclose(table.scores(some, 1), reference(some, 1), _TOLERANCE, _TOLERANCE, equal_nan=True)
        for some in several
    )


def _rule(header: Any) -> Rule | None:
    """The function that is applied to the sums; None for a rule that is rare."""
    name = str(np.asarray(header.get_field("postprocessor")).item())
    if name == "sigmoid":
        return partial(_sigmoid, float(header.get_field("sigmoid_alpha")[0]))
    rules: dict[str, Rule] = {
        "identity": _same,
        "identity_multiclass": _same,
        "softmax": _softmax,
        "exponential": _exponential,
    }
    return rules.get(name)


def _same(sums: Array) -> Array:
    return sums


def _exponential(sums: Array) -> Array:
    with np.errstate(over="ignore"):
        found: Array = np.exp(sums)
    return found


def _sigmoid(alpha: float, sums: Array) -> Array:
    with np.errstate(over="ignore"):
        found: Array = 1 / (1 + np.exp(-alpha * sums))
    return found


def _softmax(sums: Array) -> Array:
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found
