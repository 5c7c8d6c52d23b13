"""The list of settings of ``--backend-config`` beside the places where backends read them."""

from __future__ import annotations

import ast
import re

from naiad.options.backend_settings import REFERENCE_ALONE, SETTINGS
from support.source_tree import modules, tree

HYPHENATED = re.compile(r"[a-z]+(-[a-z]+)+")
OTHER_NAMES = re.compile(r"conda-.*|naiad-.*|onnxruntime-.*|ml-dtypes")
"""Files, threads and packages."""


def texts() -> set[str]:
    """Every text in the code of the backends."""
    backends = (name for name in modules() if name.startswith("naiad.backends."))
    nodes = (node for name in backends for node in ast.walk(tree(name)))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_each_setting_that_a_backend_reads_is_listed() -> None:
    """One that is not gets no hint when it is misspelt, and may be taken for a misspelt other one."""
    hyphenated = {text for text in texts() if HYPHENATED.fullmatch(text) and not OTHER_NAMES.fullmatch(text)}
    assert hyphenated - SETTINGS == set()


def test_each_listed_setting_is_read_or_the_reference_s() -> None:
    assert texts() & REFERENCE_ALONE == set()
    assert SETTINGS - REFERENCE_ALONE - texts() == set()
