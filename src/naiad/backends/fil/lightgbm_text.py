"""LightGBM's text format, checked before treelite reads it: treelite trusts the counts and the children in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_LAST_LINE: Final = b"end of trees"
_SIZES: Final = b"\ntree_sizes="
_TREE: Final = b"\nTree="
_CATEGORICAL: Final = 1

Array = np.ndarray[Any, Any]


def text_problem(content: bytes) -> str:
    """The fault of a file, "" for none.

    Without it a number that is too large would lead treelite beyond its arrays, and one that is too small in a circle.
    """
    if _SIZES in content and _LAST_LINE not in content:
        # Treelite would serve what is there, without the rest.
        return f'it lacks the line "{_LAST_LINE.decode()}", so it is cut short'
    for number, block in enumerate(content.split(_TREE)[1:]):
        try:
            problem = _tree_problem(dict(_fields(block)))
        except (KeyError, ValueError, OverflowError) as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            return f"tree {number}: {problem}"
    return ""


def _fields(block: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (line.partition(b"=") for line in block.splitlines())
    return [(key, value) for key, found, value in pairs if found]


def _tree_problem(fields: Mapping[bytes, bytes]) -> str:
    leaves, categories = int(fields[b"num_leaves"]), int(fields[b"num_cat"])
    values = len(fields[b"leaf_value"].split())
    if not 0 < leaves <= values:
        return f"num_leaves is {leaves}, and leaf_value has {values}"
    if categories < 0:
        return f"num_cat is {categories}"
    if leaves == 1:
        return ""
    children = np.concatenate((_numbers(fields, b"left_child"), _numbers(fields, b"right_child")))
    # Each leaf, numbered down from -1, and each inner node but the root has one parent.
    if not np.array_equal(np.sort(children), [*range(-leaves, 0), *range(1, leaves - 1)]):
        return f"left_child and right_child make no tree of {leaves} leaves"
    return _category_problem(fields, categories, leaves - 1)


def _category_problem(fields: Mapping[bytes, bytes], categories: int, inner: int) -> str:
    if b"decision_type" not in fields:
        return ""
    kinds = _numbers(fields, b"decision_type")
    places = np.array(fields[b"threshold"].split(), np.float64)
    if len(kinds) != inner or len(places) != inner:
        return f"{inner} splits, {len(kinds)} times decision_type and {len(places)} times threshold"
    chosen = places[kinds & _CATEGORICAL == 1]
    if len(chosen) and not (chosen.min() >= 0 and chosen.max() < categories):
        return f"a split by the category {chosen.max():g}, and num_cat is {categories}"
    return _bounds_problem(fields, categories) if categories else ""


def _bounds_problem(fields: Mapping[bytes, bytes], categories: int) -> str:
    bounds = _numbers(fields, b"cat_boundaries")
    values = len(fields[b"cat_threshold"].split())
    if len(bounds) <= categories or bounds[0] < 0 or (np.diff(bounds) < 0).any() or bounds[categories] > values:
        return f"cat_boundaries do not fit num_cat, {categories}, and the {values} numbers of cat_threshold"
    return ""


def _numbers(fields: Mapping[bytes, bytes], name: bytes) -> Array:
    return np.array(fields[name].split(), np.int64)
