"""A call as a JSON object with its name and its arguments as members."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import orjson

from naiad.wire.openai.tool_calls.cursor import Cursor, Reading
from naiad.wire.openai.tool_calls.draft import Draft
from naiad.wire.openai.tool_calls.json_value import (
    VALUE_BEGINNINGS,
    MalformedCallError,
    pass_colon,
    pass_space,
    pass_string,
    pass_value,
    take,
)

_NAME: Final = "name"


def read_call_object(cursor: Cursor, draft: Draft, argument_keys: Collection[str]) -> Reading[None]:
    """Read the object at the position into ``draft``, with its members in any order.

    Of members that occur several times the first counts, and so does the first of several argument keys. Others are
    passed over.

    Raises:
        MalformedCallError: it is no JSON object, or lacks a name or arguments.
    """
    yield from take(cursor, "{")
    separator = ","
    while separator == ",":
        yield from pass_space(cursor)
        key = yield from _read_string(cursor)
        yield from pass_colon(cursor)
        yield from _read_member(cursor, draft, key, argument_keys)
        yield from pass_space(cursor)
        separator = yield from take(cursor, ",", "}")
    draft.complete()


def _read_member(cursor: Cursor, draft: Draft, key: str, argument_keys: Collection[str]) -> Reading[None]:
    if key == _NAME and not draft.has_name:
        draft.set_name((yield from _read_name(cursor)))
    elif key in argument_keys and not draft.has_arguments:
        yield from read_arguments(cursor, draft)
    else:
        yield from pass_value(cursor)


def read_arguments(cursor: Cursor, draft: Draft) -> Reading[None]:
    """Read the value at the position as the arguments of ``draft``.

    Raises:
        MalformedCallError: it is no JSON value.
    """
    # No call is announced for what cannot become arguments.
    if (yield from cursor.peek()) not in VALUE_BEGINNINGS:
        raise MalformedCallError
    draft.begin_arguments()
    yield from cursor.copy(pass_value(cursor), draft.add_arguments)


def _read_name(cursor: Cursor) -> Reading[str]:
    name = yield from _read_string(cursor)
    if not name:
        raise MalformedCallError
    return name


def _read_string(cursor: Cursor) -> Reading[str]:
    text = yield from cursor.passed(pass_string(cursor))
    try:
        return str(orjson.loads(text))
    except orjson.JSONDecodeError:
        # Half of a surrogate pair, which no response could be encoded with.
        raise MalformedCallError from None
