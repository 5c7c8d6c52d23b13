"""The program that reads the file of a forest before a server does.

Checkpoints of treelite and XGBoost's legacy files have no checksum, and treelite trusts the numbers in them: one wrong
bit ends the process that reads it, keeps it busy for minutes, or makes trees whose runs do the same. This program has
limits of memory and of time, and may die. Its last line says what it has found: ``SOUND``, or what is wrong with the
file.

It imports nothing of Naiad, since it also runs under the Python of a model's environment.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

SOUND: Final = "the file is sound"
_SPARE_BYTES: Final = 2 << 30
"""Memory beside that of the trees, such as the stacks of threads, which are mapped and not used."""
_TIMES_THE_FILE: Final = 8
# One entry for each node.
_NODE_FIELDS: Final = (
    *("node_type", "cleft", "cright", "split_index", "default_left", "leaf_value", "threshold", "cmp"),
    *("category_list_right_child", "leaf_vector_begin", "leaf_vector_end", "category_list_begin", "category_list_end"),
)


# What treelite puts before its reason: the time, the place in its source, and the condition that failed.
_PLACE: Final = re.compile(r"^\[[\d:]+\] \S+?: (?:Check failed: [^:]+: (?=\S))?")


class DamagedError(Exception):
    """What does not fit together."""


def limit(file: Path, cpu_s: int) -> None:
    """Allow this process several times the size of the file, and so many seconds of a processor."""
    # Not above: the server imports this module too, and some systems have no limits.
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    most = mapped + _SPARE_BYTES + _TIMES_THE_FILE * file.stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def reason_of(error: Exception) -> str:
    """What a library says, without the place in its source."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _PLACE.sub("", first).rstrip(": ")


def check(file: Path, model_type: str) -> None:
    """Read a file and run what it holds.

    Raises:
        DamagedError: its numbers do not fit together.
        Exception: of treelite.
    """
    import treelite

    if model_type == "xgboost":
        model = treelite.frontend.load_xgboost_model_legacy_binary(file)
    else:
        model = treelite.Model.deserialize(file)
    check_model(model)
    rows = np.stack([np.zeros(model.num_feature, np.float32), np.full(model.num_feature, np.nan, np.float32)])
    treelite.gtil.predict(model, rows, nthread=1)


def check_model(model: Any) -> None:
    """Check that the runs of a model of treelite stay inside its arrays, and come to an end.

    Raises:
        DamagedError: they might not.
    """
    trees, features = _check_header(model)
    shape = _numbers(model.get_header_accessor(), "leaf_vector_shape")
    for number in range(trees):
        _check_tree(model.get_tree_accessor(number), f"tree {number}", features, int(np.prod(shape)))


def _check_header(model: Any) -> tuple[int, int]:
    """The numbers of trees and of features."""
    header = model.get_header_accessor()
    trees, features, targets = (_number(header, name) for name in ("num_tree", "num_feature", "num_target"))
    classes, shape = _numbers(header, "num_class"), _numbers(header, "leaf_vector_shape")
    _require(features > 0 and targets > 0, f"{features} features and {targets} targets")
    _require(len(classes) == targets and classes.min() > 0, f"{targets} targets and num_class {classes}")
    most = int(classes.max())
    scores = len(_numbers(header, "base_scores"))
    _require(scores == targets * most, f"{targets} targets of {most} classes and {scores} base scores")
    _require(shape.tolist() in [[t, c] for t in {1, targets} for c in {1, most}], f"leaf vectors of shape {shape}")
    for name, count in (("target_id", targets), ("class_id", most)):
        ids = _numbers(header, name)
        _require(len(ids) == trees, f"{trees} trees and {len(ids)} times {name}")
        _require(trees == 0 or (ids.min() >= -1 and ids.max() < count), f"{name} beyond {count}")
    return trees, features


def _check_tree(tree: Any, place: str, features: int, leaf_size: int) -> None:
    nodes = _number(tree, "num_nodes")
    fields = {name: _numbers(tree, name) for name in _NODE_FIELDS}
    for name, values in fields.items():
        _require(len(values) == nodes, f"{place}: {nodes} nodes and {len(values)} times {name}")
    inner = fields["cleft"] != -1
    children = np.concatenate((fields["cleft"][inner], fields["cright"][inner]))
    if len(children):
        _require(children.min() > 0 and children.max() < nodes, f"{place}: a child beyond its {nodes} nodes")
        # Else a way through the tree might not end.
        _require(int(np.bincount(children).max()) == 1, f"{place}: a node with two parents")
        splits = fields["split_index"][inner]
        _require(splits.min() >= 0 and splits.max() < features, f"{place}: a split beyond {features} features")
    vectors = _check_ranges(tree, fields, "leaf_vector", place)
    _require(not len(vectors) or set(vectors) <= {0, leaf_size}, f"{place}: leaf vectors that are not of {leaf_size}")
    _check_ranges(tree, fields, "category_list", place)


def _check_ranges(tree: Any, fields: dict[str, Any], name: str, place: str) -> list[int]:
    """The sizes of the nodes' parts of a list."""
    begin, end = (fields[f"{name}_{what}"] for what in ("begin", "end"))
    if not begin.any() and not end.any():
        return [0]
    begin, end = begin.astype(np.uint64), end.astype(np.uint64)
    whole = len(_numbers(tree, name))
    _require(bool((begin <= end).all() and (end <= whole).all()), f"{place}: a range beyond {whole} times {name}")
    sizes: list[int] = np.unique(end - begin).tolist()
    return sizes


def _number(accessor: Any, name: str) -> int:
    return int(_numbers(accessor, name)[0])


def _numbers(accessor: Any, name: str) -> Any:
    return np.asarray(accessor.get_field(name))


def _require(fits: bool, found: str) -> None:
    if not fits:
        raise DamagedError(f"it has {found}")


def main() -> None:
    """Check the file that ``argv[1]`` names, in ``argv[2]`` seconds of a processor; ``argv[3]`` is its model_type."""
    file = Path(sys.argv[1])
    limit(file, int(sys.argv[2]))
    sys.stdout.write(f"{_verdict(file, sys.argv[3])}\n")


def _verdict(file: Path, model_type: str) -> str:
    try:
        check(file, model_type)
    except MemoryError:
        return "it asks for far more memory than its size"
    except Exception as error:
        return reason_of(error)
    return SOUND


if __name__ == "__main__":
    main()
