"""The members of a request: types, limits, defaults, and how problems are listed."""

from __future__ import annotations

import math

import pytest

from naiad.wire.openai.schema import (
    MAX_PROBLEMS,
    Check,
    Member,
    SchemaError,
    array_of,
    flag,
    integer,
    number,
    object_of,
    one_of,
    read_members,
    text,
)

MEMBERS = {"name": Member(text, is_required=True), "count": Member(integer(0, 9), 3)}


def problems_of(given: object, members: dict[str, Member] = MEMBERS) -> list[tuple[str, list[object]]]:
    with pytest.raises(SchemaError) as caught:
        read_members(given, members, ("body",))
    return [(problem.kind, list(problem.place[1:])) for problem in caught.value.problems]


def test_what_is_not_given_or_null_has_its_default() -> None:
    for given in ({"name": "a"}, {"name": "a", "count": None}):
        assert read_members(given, MEMBERS, ()) == {"name": "a", "count": 3}


def test_all_problems_are_listed_in_their_order() -> None:
    found = problems_of({"z": 1, "a": 2, "count": 10})
    assert found == [
        ("missing", ["name"]),
        ("less_than_equal", ["count"]),
        ("extra_forbidden", ["z"]),
        ("extra_forbidden", ["a"]),
    ]


def test_a_list_of_problems_has_an_end() -> None:
    assert len(problems_of({str(place): 0 for place in range(1000)})) == MAX_PROBLEMS


@pytest.mark.parametrize("given", [None, [], "name", 5])
def test_what_is_no_object(given: object) -> None:
    assert problems_of(given) == [("model_attributes_type", [])]


@pytest.mark.parametrize(
    ("check", "value", "kind"),
    [
        (integer(0), True, "int_type"),
        (integer(0), 1.0, "int_type"),
        (number(0, 2), False, "float_type"),
        (number(0, 2), math.nan, "greater_than_equal"),
        (number(0, 2), math.inf, "less_than_equal"),
        (flag, 1, "bool_type"),
        (one_of("a", "b"), ["a"], "literal_error"),
        (array_of(text, most=1), ["a", "b"], "too_long"),
        (object_of({"x": Member(flag, is_required=True)}), {"y": 1}, "missing"),
    ],
)
def test_values_that_are_wrong(check: Check, value: object, kind: str) -> None:
    assert [problem.kind for problem in check(value, ())] == [kind]


def test_an_inner_object_may_have_other_members() -> None:
    assert list(object_of({"x": Member(flag)})({"x": True, "y": 1}, ())) == []


def test_a_limit_is_named_digit_by_digit() -> None:
    (found,) = integer(0, (1 << 63) - 1)(1 << 63, ())
    assert found.message == "Input should be less than or equal to 9223372036854775807"
