"""JSON ends, and is malformed, where other parsers say so."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from naiad.wire.openai.tool_calls.calls import ParsedText, ToolCall
from naiad.wire.openai.tool_calls.formats import FORMATS

CHARACTERS = '[]{}",: \n\\/uTfte+-.0129\x00é'
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
_layouts = st.sampled_from([None, 1, "\t\r\n"])


def call(arguments: str) -> str:
    return f'{{"name": "f", "parameters": {arguments}}}'


@given(_values, _layouts, st.booleans())
def test_values_are_read_to_their_end(value: object, indent: int | str | None, ascii_only: bool) -> None:
    arguments = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert FORMATS["llama3"].read(call(arguments)) == ParsedText("", (ToolCall("f", arguments),))


@settings(max_examples=300)
@given(_values, _layouts, st.randoms())
def test_what_is_malformed_is_no_call(value: object, indent: int | str | None, chance: random.Random) -> None:
    text = call(changed(json.dumps(value, indent=indent), chance))
    read = FORMATS["llama3"].read(text)
    assert is_json(text) == (read.content == "" and len(read.calls) == 1)


def changed(text: str, chance: random.Random) -> str:
    """The text with up to two characters more or less."""
    for _ in range(chance.randrange(3)):
        place = chance.randrange(len(text) + 1)
        end = place + chance.randrange(2)
        text = text[:place] + chance.choice(["", *CHARACTERS]) + text[end:]
    return text


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def refuse(word: str) -> None:
    """Python reads the bare words NaN and Infinity, which are no JSON."""
    raise ValueError(word)
