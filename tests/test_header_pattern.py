"""Patterns of header names, against Python's own expressions where both know the syntax."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from naiad.options.header_pattern import MAX_STEPS, HeaderPattern

ONE = st.sampled_from(["a", "b", "B", "-", "_", ".", "[ab]", "[^a-]", "[a-c_]", r"[\d-]", r"\d", r"\W", r"\w", r"\-"])
REPEATED = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "??"])
PATTERNS = st.recursive(
    ONE,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("(?:|{})".format, inner),
        st.builds("(?P<n>{})".format, ONE),
        st.builds("(?:{}){}".format, inner, REPEATED),
        st.builds("(?:^{})".format, inner),
        st.builds("(?:{}$)".format, inner),
        st.builds(r"\A{}".format, inner),
    ),
    max_leaves=8,
).filter(lambda pattern: pattern.count("(?P<n>") < 2)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.lists(st.text("abcB-_1x", min_size=1, max_size=8), min_size=1, max_size=8))
@example("(^a|b$)", ["a", "ca", "cb", "bc"])
@example("(?:a{0,2}b?){0,3}-", ["aab-", "-", "a"])
def test_it_finds_what_an_expression_finds(pattern: str, names: list[str]) -> None:
    expression = re.compile(pattern, re.IGNORECASE)
    found = HeaderPattern(pattern)
    for name in names:
        assert found.matches(name) == found.matches(name) == bool(expression.search(name)), name


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("x-user", ["X-User", "x-user-id", "my-X-USER"], ["x_user", "user"]),
        ("(?i)^X-(User|Team)$", ["x-user", "X-TEAM"], ["x-users", "ax-user"]),
        ("(?-i)^X-([^A]|b)", ["X-User", "X-b", "X-a"], ["x-User", "X-A"]),
        (".*", ["a", "x" * 1000], []),
        (r"^\w+\z", ["abc_1"], ["a-b"]),
        ("[^a-m]", ["n", "AN"], ["A", "abc"]),
        (r"x\.y", ["x.y"], ["x-y"]),
        ("a{3}", ["baaab"], ["aa"]),
    ],
)
def test_names(pattern: str, matching: list[str], others: list[str]) -> None:
    found = HeaderPattern(pattern)
    assert [name for name in (*matching, *others) if found.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "it ends too early"),
        ("a)", "there is no '(' for the ')'"),
        ("[a", "it ends too early"),
        ("*a", "there is nothing to repeat before '*'"),
        ("a{3", "expected {n}, {n,} or {n,m}"),
        ("a{2,1}", "the smaller one first"),
        (r"\b", r"'\b' is not known"),
        ("(?=a)", "only the groups"),
        (r"(a)\1", r"'\1' is not known"),
        ("[[:alpha:]]", "named sets are not known"),
        ("(a{100}){100}", f"more than {MAX_STEPS} steps"),
        ("a" * (MAX_STEPS + 1), f"more than {MAX_STEPS} steps"),
        ("[b-a]", "the wrong way round"),
        ("\\", "it ends too early"),
        ("(" * 5000, "the groups are too deep"),
    ],
)
def test_patterns_that_are_refused(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)) as raised:
        HeaderPattern(pattern)
    assert "Invalid pattern of header names. Got " in str(raised.value)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", ".*.*.*.*b", "(x{0,9}a?){0,9}$"])
def test_the_time_does_not_explode(pattern: str) -> None:
    found = HeaderPattern(pattern)
    begun = time.process_time()
    found.matches("a" * 60_000 + "!")
    assert time.process_time() - begun < 5
