"""Routes as they are written in a configuration and sent over the API."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.config.routes import NO_ROUTES, Routes, Shadow, changed_by, routes_of_parameters, version_of
from naiad.errors import InvalidArgumentError

VERSIONS = st.integers(1, 2**63 - 1)
ROUTES = st.builds(
    Routes,
    st.dictionaries(st.from_regex(r"\A[A-Za-z][A-Za-z0-9_.-]{0,20}\Z"), VERSIONS, max_size=5),
    st.lists(st.tuples(VERSIONS, st.integers(1, 1_000_000)), max_size=5, unique_by=lambda share: share[0]).map(tuple),
)


def test_parameters() -> None:
    found = routes_of_parameters(
        {
            "route.alias.stable": "2",
            "route.alias.next": " 3".strip(),
            "route.split": "2:90, 3 : 10",
            "route.shadow": "4:0.25",
            "route.shadow.tolerance": "1e-3",
            "other": "x",
        }
    )
    assert found == Routes({"stable": 2, "next": 3}, ((2, 90), (3, 10)), Shadow(4, 0.25, 1e-3))
    assert routes_of_parameters({"route.shadow": "4"}).shadow == Shadow(4, 1.0, 0.0)
    assert not routes_of_parameters({"other": "x"})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("route.alias.1st", "1", "cannot be an alias"),
        ("route.alias." + "a" * 65, "1", "cannot be an alias"),
        ("route.alias.a", "latest", 'is "latest", expected the number of a version'),
        ("route.alias.a", "0", "expected the number of a version"),
        ("route.alias.a", "9" * 5000, "expected the number of a version"),
        ("route.split", "1", "expected version:weight"),
        ("route.split", "1:0", "whole number from 1"),
        ("route.split", "1:-1", "expected version:weight"),
        ("route.split", "1:1,1:2", "stands twice"),
        ("route.split", ",".join(f"{n}:1" for n in range(1, 18)), "up to 16 versions"),
        ("route.shadow", "1:0", "above 0 and up to 1"),
        ("route.shadow", "1:nan", "above 0 and up to 1"),
        ("route.shadow", "1:x", "expected a number"),
        ("route.shadow.tolerance", "1", "has no effect without"),
        ("route.weights", "1", "is no route"),
    ],
)
def test_wrong_parameters_are_named(key: str, value: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        routes_of_parameters({key: value})


@pytest.mark.slow
@given(ROUTES)
def test_what_is_shown_can_be_sent(routes: Routes) -> None:
    assert changed_by(NO_ROUTES, routes.as_json()) == routes


def test_a_change_adds_aliases_and_replaces_the_rest() -> None:
    before = Routes({"a": 1, "b": 2}, ((1, 1),), Shadow(2))
    assert changed_by(before, {"aliases": {"a": None, "c": 3}}) == Routes({"b": 2, "c": 3}, ((1, 1),), Shadow(2))
    assert changed_by(before, {"split": {"2": 1, "3": 1}}).split == ((2, 1), (3, 1))
    assert changed_by(before, {"aliases": None, "split": None, "shadow": None}) == NO_ROUTES
    assert changed_by(before, {}) == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"alias": {}}, "unknown field 'alias'"),
        ({"aliases": []}, "'aliases' must be an object"),
        ({"aliases": {"a": True}}, "must be a version"),
        ({"aliases": {"a": -1}}, "expected the number"),
        ({"aliases": {f"a{n}": 1 for n in range(65)}}, "too many"),
        ({"split": [1]}, "'split' must be an object"),
        ({"split": {"1": 1.5}}, "whole number"),
        ({"split": {"1": True}}, "whole number"),
        ({"split": {"1": 10**7}}, "whole number"),
        ({"split": {"x": 1}}, "expected the number"),
        ({"shadow": 3}, "'shadow' must be an object"),
        ({"shadow": {"fraction": 1}}, "'shadow' must be an object"),
        ({"shadow": {"version": 1, "fraction": "1"}}, "fraction"),
        ({"shadow": {"version": 1, "tolerance": -1}}, "tolerance"),
        ({"split": {"1": 1}, "shadow": {"version": 1}}, "its own shadow"),
    ],
)
def test_wrong_changes_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        changed_by(NO_ROUTES, change)


def test_versions_are_numbers_or_texts_of_numbers() -> None:
    assert version_of(3, "it") == version_of("3", "it") == 3
    for wrong in (True, 3.0, None, "three", "\u0663", 2**63):
        with pytest.raises(InvalidArgumentError):
            version_of(wrong, "it")
