"""Words that docs/glossary.md has retired do not return as names.

The glossary's table is the list. ``ALLOWED`` has the names that keep a word of it, which means something else there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pytest

from support.source_tree import PACKAGE, ROOT, modules, tree

ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|$", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

ALLOWED = {
    "children": {
        "children": "traces and frames of ensembles are trees; folders have entries",
        "_children": "as above",
        "MAX_CHILDREN": "of processes that a model forked, which are children of its worker",
    },
    "direct": {
        "DirectBatcher": "the strategy Direct of the reference's sequence batcher",
        "SequenceBatcherStrategyDirect": "its name in Triton Model Navigator",
    },
    "expect": {"expect_continue": "the header Expect of HTTP"},
    "tell": {"tell": "a method of files, which archives are read from"},
    "together": {"MAX_STREAMS_TOGETHER": "of all connections, not a lease"},
}
"""For each word, the names that may have it, with the reason."""


class Name(NamedTuple):
    """A name that a module defines; ``kind`` is "module", "class", "function", "parameter" or "attribute"."""

    kind: str
    name: str
    place: str


@cache
def retired() -> dict[str, str]:
    """The retired words of the glossary, each with the term to use."""
    section = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Retired words", 1)[1]
    return {word: term for words, term in ROW.findall(section) for word in re.findall(r"`([^`]+)`", words)}


def snake(name: str) -> str:
    """The words of a name in snake or camel case, with ``_`` before, between and behind them."""
    return f"_{'_'.join(WORD.findall(name)).lower()}_"


def names_of(module: str, source: ast.Module) -> Iterator[Name]:
    """All names that a module defines, its own included; local variables are free."""
    for part in module.removeprefix(PACKAGE).strip(".").split("."):
        yield Name("module", part, module)
    for node in ast.walk(source):
        if isinstance(node, ast.ClassDef):
            yield Name("class", node.name, f"{module}:{node.lineno}")
            yield from _constants(module, node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Name("function", node.name, f"{module}:{node.lineno}")
        elif isinstance(node, ast.arg):
            yield Name("parameter", node.arg, f"{module}:{node.lineno}")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield Name("attribute", node.attr, f"{module}:{node.lineno}")
    yield from _constants(module, source.body)


def _constants(module: str, body: Iterable[ast.stmt]) -> Iterator[Name]:
    for node in body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name):
                yield Name("attribute", target.id, f"{module}:{node.lineno}")


class Use(NamedTuple):
    """A retired word in a name."""

    word: str
    found: Name

    def __str__(self) -> str:
        kind, name, place = self.found
        return f"{place}: {kind} '{name}' has the retired word '{self.word}', the term is: {retired()[self.word]}"


def uses(names: Iterable[Name]) -> Iterator[Use]:
    """The retired words in names, those that are allowed left out."""
    for found in set(names):
        for word in words_in(found.name):
            yield Use(word, found)


@cache
def words_in(name: str) -> tuple[str, ...]:
    """The retired words that a name has and may not have."""
    words = snake(name)
    return tuple(word for word in retired() if f"_{word}_" in words and name not in ALLOWED.get(word, {}))


def refused(names: Iterable[Name]) -> list[str]:
    """The uses that have to go, as errors."""
    return sorted(map(str, uses(names)))


@cache
def all_names() -> tuple[Name, ...]:
    """The names of the whole package."""
    return tuple(name for module in modules() for name in names_of(module, tree(module)))


def test_no_retired_word_is_a_name() -> None:
    assert refused(all_names()) == []


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("class StrayModels: ...", "stray"),
        ("def hosted_model(): ...", "hosted"),
        ("def run(turn_end): ...", "turn_end"),
        ("class A:\n    def __init__(self):\n        self._revived = 1", "revived"),
        ("MAX_TENDED = 1", "tended"),
        ("class A:\n    misfits: int", "misfits"),
        ("def answer_next(): ...", "answer"),
        ("def run(is_asked): ...", "asked"),
    ],
)
def test_a_retired_word_is_found(source: str, word: str) -> None:
    problems = refused(names_of("naiad.some", ast.parse(source)))
    assert len(problems) == 1
    assert f"'{word}'" in problems[0]


def test_other_words_and_local_variables_are_free() -> None:
    source = "def straying(childhood): stray = childhood.strays; return stray"
    assert refused(names_of("naiad.some", ast.parse(source))) == []


def test_the_list_is_about_words_of_the_glossary() -> None:
    assert ALLOWED.keys() - retired().keys() == set()


def test_the_list_has_nothing_that_is_gone() -> None:
    names = {name.name for name in all_names()}
    assert {name for allowed in ALLOWED.values() for name in allowed} - names == set(), "no such name any more"
