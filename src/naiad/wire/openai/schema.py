"""The members of a request's JSON object: which there are, their types and their limits.

Problems are reported as the reference reports them, whose texts these are: all at once, each with its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from naiad.errors import InvalidArgumentError

Place = tuple[str | int, ...]


class Problem(NamedTuple):
    """A mistake at one place.

    Attributes:
        kind: a short name for it.
        place: the names of members and the positions in arrays that lead there, such as ``("body", "stop", 1)``.
        message: the text for people.
    """

    kind: str
    place: Place
    message: str

    def as_json(self) -> dict[str, Any]:
        """The problem as an entry of ``detail``."""
        return {"type": self.kind, "loc": list(self.place), "msg": self.message}


class SchemaError(InvalidArgumentError):
    """A request whose members are not as they have to be; ``problems`` says which."""

    http_status: ClassVar[int] = 422

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, one.place))}: {one.message}" for one in problems))
        self.problems = problems


Check = Callable[[Any, Place], Iterator[Problem]]
"""Looks at a value that is not null, and yields what is wrong with it."""


class Member(NamedTuple):
    """One member of an object. One that may be missing may be null too, and then has the value ``default``."""

    check: Check
    default: Any = None
    is_required: bool = False


MAX_PROBLEMS: Final = 32
"""How many problems one response lists: a request can have any number."""


def read_members(given: Any, members: Mapping[str, Member], place: Place) -> dict[str, Any]:
    """The values of all ``members`` in the object ``given``, which has no others.

    Raises:
        SchemaError: it is no object, or something about it is wrong.
    """
    if not isinstance(given, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise SchemaError([Problem("model_attributes_type", place, message)])
    problems = list(problems_of(given, members, place))
    problems += [
        Problem("extra_forbidden", (*place, name), "Extra inputs are not permitted")
        for name in given
        if name not in members
    ]
    if problems:
        raise SchemaError(problems[:MAX_PROBLEMS])
    return {name: member.default if (value := given.get(name)) is None else value for name, member in members.items()}


def problems_of(given: Mapping[str, Any], members: Mapping[str, Member], place: Place) -> Iterator[Problem]:
    """The mistakes in the ``members`` of the object ``given``; others that it has are not looked at."""
    for name, member in members.items():
        value = given.get(name)
        if name not in given and member.is_required:
            yield Problem("missing", (*place, name), "Field required")
        elif value is not None or member.is_required:
            yield from member.check(value, (*place, name))


def text(value: Any, place: Place) -> Iterator[Problem]:
    """A text."""
    if not isinstance(value, str):
        yield Problem("string_type", place, "Input should be a valid string")


def flag(value: Any, place: Place) -> Iterator[Problem]:
    """A boolean."""
    if not isinstance(value, bool):
        yield Problem("bool_type", place, "Input should be a valid boolean")


def integer(low: int, high: int | None = None) -> Check:
    """An integer from ``low`` to ``high``."""

    def check(value: Any, place: Place) -> Iterator[Problem]:
        # A bool is also an int, and no number for the callers of this API.
        if isinstance(value, bool) or not isinstance(value, int):
            yield Problem("int_type", place, "Input should be a valid integer")
        else:
            yield from _limits(value, low, high, place)

    return check


def number(low: float, high: float) -> Check:
    """A number from ``low`` to ``high``."""

    def check(value: Any, place: Place) -> Iterator[Problem]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            yield Problem("float_type", place, "Input should be a valid number")
        else:
            yield from _limits(value, low, high, place)

    return check


def _limits(value: float, low: float, high: float | None, place: Place) -> Iterator[Problem]:
    # Written so that NaN is neither.
    if not value >= low:
        yield Problem("greater_than_equal", place, f"Input should be greater than or equal to {low}")
    elif high is not None and not value <= high:
        yield Problem("less_than_equal", place, f"Input should be less than or equal to {high}")


def any_object(value: Any, place: Place) -> Iterator[Problem]:
    """An object, whatever is in it."""
    if not isinstance(value, dict):
        yield Problem("dict_type", place, "Input should be a valid dictionary")


def anything(value: Any, place: Place) -> Iterator[Problem]:
    """A value that is not looked at."""
    return iter(())


def one_of(*words: str) -> Check:
    """One of these texts."""
    *first, last = (f"'{word}'" for word in words)
    expected = f"{', '.join(first)} or {last}" if first else last

    def check(value: Any, place: Place) -> Iterator[Problem]:
        if value not in words:
            yield Problem("literal_error", place, f"Input should be {expected}")

    return check


def text_or_texts(value: Any, place: Place) -> Iterator[Problem]:
    """A text, or an array of texts."""
    if isinstance(value, list):
        for index, element in enumerate(value):
            yield from text(element, (*place, index))
    else:
        yield from text(value, place)


def array_of(check: Check, least: int = 0, most: int | None = None) -> Check:
    """An array of ``least`` to ``most`` elements, each as ``check`` wants it."""

    def check_all(value: Any, place: Place) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield Problem("list_type", place, "Input should be a valid list")
            return
        count = len(value)
        if count < least:
            items = "item" if least == 1 else "items"
            message = f"List should have at least {least} {items} after validation, not {count}"
            yield Problem("too_short", place, message)
        elif most is not None and count > most:
            yield Problem("too_long", place, f"List should have at most {most} items after validation, not {count}")
        else:
            for index, element in enumerate(value):
                yield from check(element, (*place, index))

    return check_all


def object_of(members: Mapping[str, Member]) -> Check:
    """An object with these members, and others that are not looked at."""

    def check(value: Any, place: Place) -> Iterator[Problem]:
        yield from problems_of(value, members, place) if isinstance(value, dict) else any_object(value, place)

    return check
