"""Calls in texts that come in parts: wherever a text is cut, the result is that of the whole text."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from naiad.wire.openai.tool_calls.calls import ParsedText, StreamedCalls, TextDelta, ToolCall
from naiad.wire.openai.tool_calls.formats import FORMATS

ESCAPED = '{"text": "a\\"\\u00e9\\\\ [é]", "n": [1, -2.5e+3, true, {"z": {}}], "e": []}'
CALL = f'{{"name": "f\\u0061", "arguments": {ESCAPED}, "id": "name"}}'
EARLY = '{ "arguments" : {"x": "}"} , "name" : "late" }'
LLAMA3 = (
    *("", "Plain text, 1 < 2 and <|python.", "<|python_tag|>import os", ' {"answer": [1, 2]} ', "{} {"),
    *(CALL, f" <|python_tag|> {EARLY}\n", f"{CALL}; {EARLY};{CALL}; ", f"Well <|<|python_tag|>{CALL} so; <|python"),
    *(f"{CALL}\nassistant\n\nMore {CALL}", f"{CALL}assistant \n", f'{CALL}; {{"name": "g"}} <|python_tag|>{EARLY}'),
    # Not announced yet when it turns out to be no call.
    *(
        '{"name": "f"; "arguments": {}}',
        '{"arguments": {"a": 1',
        '{"arguments": {}, "name": 1}',
        '{"name": "f", "argum',
    ),
)
MISTRAL = (
    *(
        "",
        "Plain [text], [TOOL_CALL and [TOOL",
        "[TOOL_CALLS]",
        "[TOOL_CALLS] [1]",
        " [link](there) [",
        "[[TOOL_CALLS]",
    ),
    *(f"[{CALL}]", f" [TOOL_CALLS] [{CALL} , {EARLY}]\n", f"So [TOOL_CALLS][{CALL}] then [TOOL_CALLS][{EARLY}", "[{}]"),
    *(
        f"[TOOL_CALLS]f{ESCAPED}[TOOL_CALLS]g[CALL_ID]a1[ARGS]{{}} ok",
        f"[TOOL_CALLS][TOOL_CALLS]{CALL}",
        "[TOOL_CALLS]f[",
    ),
    *(f"[{CALL}, 1] [TOOL_CALLS]h {{}}", f"[TOOL_CALLS]no[TOOL_CALLS]f{ESCAPED}", '[{"name": "f", "arguments" {}}]'),
)
TEXTS = [("llama3", text) for text in LLAMA3] + [("mistral", text) for text in MISTRAL]
TOKENS = (
    *(
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "[CALL_ID]",
        "[ARGS]",
        "assistant\n\n",
        "f",
        " ",
        "\n",
        ";",
        ",",
        "[",
        "]",
        "{",
        "}",
    ),
    *(
        CALL,
        EARLY,
        ESCAPED,
        '"name"',
        '"arguments"',
        '"parameters"',
        ":",
        '"',
        "\\",
        "\\u12",
        "12",
        ".5",
        "null",
        "nul",
        "é",
    ),
    *(
        "{}",
        '{"name": "g", "arguments": ',
        '{"name": "g", "parameters": {"x": [',
        '"\ud800"',
        "<",
        "<|",
        "[TOOL",
        "\x00",
    ),
)
LONG = 50_000


class Streamed(NamedTuple):
    """What the deltas of a response add up to."""

    parsed: ParsedText
    has_calls: bool


def stream(name: str, parts: Iterable[str]) -> Streamed:
    """Read a response in parts, and check the numbers and names in its deltas."""
    response = FORMATS[name].stream()
    content = ""
    calls: list[ToolCall] = []
    for delta in deltas(response, parts):
        content += delta.content
        indexes = [call.index for call in delta.calls]
        assert indexes == sorted(set(indexes))
        for index, function, arguments in delta.calls:
            if function is not None:
                assert index == len(calls)
                calls.append(ToolCall(function, ""))
            assert index == len(calls) - 1
            calls[index] = ToolCall(calls[index].name, calls[index].arguments + arguments)
        assert response.has_calls == bool(calls)
    return Streamed(ParsedText(content, tuple(calls)), response.has_calls)


def deltas(response: StreamedCalls, parts: Iterable[str]) -> Iterable[TextDelta]:
    for part in parts:
        yield response.feed(part)
    yield response.finish()


def cut(text: str, places: Sequence[int]) -> list[str]:
    """The text in parts, of which some may be empty."""
    return [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]


def random_places(text: str, chance: random.Random) -> list[int]:
    return sorted(chance.choices(range(len(text) + 1), k=chance.randrange(12)))


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_parts_add_up_to_the_whole(name: str, text: str) -> None:
    expected = FORMATS[name].read(text)
    assert stream(name, [text]).parsed == expected
    assert stream(name, text).parsed == expected
    for place in range(len(text) + 1):
        assert stream(name, cut(text, [place])).parsed == expected
    chance = random.Random(text)
    for _ in range(100):
        assert stream(name, cut(text, random_places(text, chance))).parsed == expected


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_truncated_texts(name: str, text: str) -> None:
    """Of a call that has no end, the arguments up to there were announced; all else is the same."""
    for end in range(len(text)):
        whole, streamed = FORMATS[name].read(text[:end]), stream(name, text[:end]).parsed
        if streamed != whole:
            assert streamed.calls[:-1] == whole.calls
            assert_announced_alone(streamed, whole)


def assert_announced_alone(streamed: ParsedText, whole: ParsedText) -> None:
    """The content lacks the last call up to where its arguments end, and nothing else."""
    content = streamed.content
    assert any(
        whole.content.startswith(content[:place]) and whole.content.endswith(content[place:])
        for place in range(len(content) + 1)
    )
    assert streamed.calls[-1].arguments in whole.content


@given(
    st.sampled_from([("llama3", "<|python_tag|>%s"), ("mistral", "[TOOL_CALLS][%s]"), ("mistral", "[TOOL_CALLS]%s")]),
    st.lists(st.tuples(st.text("ab <[T"), st.sampled_from([CALL, EARLY])), min_size=1),
    st.randoms(),
)
def test_all_content_between_calls_is_found(
    written: tuple[str, str], rows: list[tuple[str, str]], chance: random.Random
) -> None:
    name, call = written
    # White space alone belongs to the calls around it, so the content of each row begins with a letter.
    text = "".join(f"a{content}{call % found}" for content, found in rows)
    expected = "".join(f"a{content}" for content, _ in rows)
    for found in (FORMATS[name].read(text), stream(name, cut(text, random_places(text, chance))).parsed):
        assert found.content == expected
        assert len(found.calls) == len(rows)


@given(st.sampled_from(sorted(FORMATS)), st.lists(st.sampled_from(TOKENS), max_size=12).map("".join), st.randoms())
@example("llama3", f"{CALL};{CALL[:-1]}", random.Random(1))
@example("mistral", f"[TOOL_CALLS]f{ESCAPED[:-3]}\n[TOOL_CALLS]f{ESCAPED}", random.Random(1))
def test_any_text_in_any_parts(name: str, text: str, chance: random.Random) -> None:
    whole = FORMATS[name].read(text)
    assert whole.calls or whole.content == text
    for call in whole.calls:
        assert is_json(call.arguments)
        assert call.arguments in text
    once = stream(name, [text])
    assert stream(name, text) == once
    assert stream(name, cut(text, random_places(text, chance))) == once
    assert_adds_up(once.parsed, whole)


def is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        # What is a text in Python, and valid for its grammar, may still be half of a surrogate pair.
        return "\ud800" in text
    return True


def assert_adds_up(streamed: ParsedText, whole: ParsedText) -> None:
    """The complete calls are those of the whole text; the others were announced too early."""
    announced = iter(streamed.calls)
    assert all(call in announced for call in whole.calls)
    if len(streamed.calls) == len(whole.calls):
        assert streamed == whole
    else:
        # What was announced is missing in the content.
        following = iter(whole.content)
        assert all(character in following for character in streamed.content)


@pytest.mark.parametrize(
    ("name", "text", "content", "calls"),
    [
        ("llama3", '{"name": "f", "arguments": {"a": 1 2}} x', "2}} x", [("f", '{"a": 1 ')]),
        ("llama3", '{"name": "f", "arguments": {"a": "x\ny"}}', '\ny"}}', [("f", '{"a": "x')]),
        ("llama3", '{"name": "f", "arguments": {"a": 12x, 1}}', ", 1}}", [("f", '{"a": 12x')]),
        ("llama3", '{"name": "f", "arguments": {"a', "", [("f", '{"a')]),
        # Behind the arguments nothing is lost.
        ("llama3", '{"name": "f", "arguments": {} , "id": 7; and', ' , "id": 7; and', [("f", "{}")]),
        ("llama3", f'{CALL}; {{"name": "f", "arguments": [}} <|python_tag|>{EARLY}', "} ", None),
        ("mistral", "[TOOL_CALLS]f{1} [TOOL_CALLS]g{}", "1} ", [("f", "{"), ("g", "{}")]),
        ("mistral", '[{"name": "f", "arguments": {}]', "]", [("f", "{}")]),
    ],
)
def test_calls_that_were_announced_remain(
    name: str, text: str, content: str, calls: list[tuple[str, str]] | None
) -> None:
    expected = calls or [("fa", ESCAPED), ("f", "["), ("late", '{"x": "}"}')]
    for parts in ([text], list(text)):
        found = stream(name, parts)
        assert found == Streamed(ParsedText(content, tuple(ToolCall(*call) for call in expected)), True)
    assert len(FORMATS[name].read(text).calls) == len(expected) - 1


def test_what_is_known_comes_at_once() -> None:
    response = FORMATS["mistral"].stream()
    assert response.feed("I look [TO") == ("I look ", ())
    assert response.feed("DAY") == ("[TODAY", ())
    assert response.feed(".[TOOL_CA") == (".", ())
    assert response.feed('LLS][{"name": "f') == ("", ())
    assert response.has_calls is False
    assert response.feed('", "arguments": ') == ("", ())
    assert response.feed('{"ci') == ("", ((0, "f", '{"ci'),))
    assert response.has_calls is True
    assert response.feed('ty": ') == ("", ((0, None, 'ty": '),))
    assert response.feed("") == ("", ())
    assert response.feed('1}}, {"name": "g", "arguments": {}}') == ("", ((0, None, "1}"), (1, "g", "{}")))
    assert response.feed("] \n") == ("", ())
    assert response.finish() == ("", ())
    assert response.finish() == ("", ())


def test_space_is_held_back_only_around_calls() -> None:
    response = FORMATS["llama3"].stream()
    assert response.feed("\n ") == ("", ())
    assert response.feed("a ") == ("\n a ", ())
    assert response.feed("b\n") == ("b\n", ())
    assert response.finish() == ("", ())


def test_arguments_before_the_name_come_with_it() -> None:
    response = FORMATS["llama3"].stream()
    assert response.feed('{"parameters": {"x": 1}, "name": "') == ("", ())
    assert response.feed('f"') == ("", ((0, "f", '{"x": 1}'),))
    assert response.feed("}") == ("", ())
    assert response.finish() == ("", ())


def test_a_response_that_is_dropped_leaves_no_cycle() -> None:
    response = FORMATS["llama3"].stream()
    response.feed('{"name": "f", "arguments": {"x')
    gc.disable()
    try:
        gone = weakref.ref(response)
        del response
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        *(
            "a" * LONG,
            " " * LONG,
            "[" * LONG,
            "<" * LONG,
            "[TOOL_CALLS]" * (LONG // 12),
            "<|python_tag|>" * (LONG // 14),
        ),
        *(
            "[TOOL_CALLS]f[TOOL" * (LONG // 18),
            "{" * LONG,
            '{"name":' * (LONG // 8),
            "[{" * (LONG // 2),
            "{}" * (LONG // 2),
        ),
        *(
            '{"' + "k" * LONG,
            '{"a": ' + "1" * LONG,
            '{"name": "' + "f" * LONG,
            '{"arguments": {"a": "' + "\\u00e9" * LONG,
        ),
        '{"name": "f", "arguments": {"a": "' + "x" * LONG + '"}}' + " " * LONG + "assistant\n\n" + "x" * LONG,
        '{"name": "f", "arguments": ' + "[" * LONG + "]" * LONG + "}",
        (CALL + "; ") * (LONG // len(CALL)),
        "[TOOL_CALLS]" + "f" * LONG + " " * LONG + "[CALL_ID]" + "1" * LONG + "[ARGS]" + "{}" + " " * LONG,
    ],
    ids=range(19),
)
def test_long_texts_in_parts_of_one_character(name: str, text: str) -> None:
    """They would take minutes if they were read again with each part."""
    if name == "mistral" and text.startswith("{"):
        text = f"[{text}]"
    assert stream_quickly(name, text) == stream_quickly(name, [text])


def stream_quickly(name: str, parts: Iterable[str]) -> tuple[str, str]:
    """The content, and the arguments of all calls."""
    found = list(deltas(FORMATS[name].stream(), parts))
    content = "".join(delta.content for delta in found)
    return content, "".join(call.arguments for delta in found for call in delta.calls)
