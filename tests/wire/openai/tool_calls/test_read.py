"""Calls in whole texts."""

from __future__ import annotations

import orjson
import pytest

from naiad.wire.openai.tool_calls.calls import ParsedText, ToolCall
from naiad.wire.openai.tool_calls.formats import FORMATS

WEATHER = '{"city": "Dallas",  "state":"TX", "days": [1, 2.5e3], "exact": null}'
CALL = f'{{"name": "get_weather", "arguments": {WEATHER}}}'
FOUND = ToolCall("get_weather", WEATHER)
LLAMA_CALL = CALL.replace("arguments", "parameters")
OTHER = ToolCall("get_time", "{}")
OTHER_CALL = '{"name":"get_time","arguments":{}}'


def llama3(text: str) -> ParsedText:
    return FORMATS["llama3"].read(text)


def mistral(text: str) -> ParsedText:
    return FORMATS["mistral"].read(text)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        *("", " \n", "It is warm.", "a < b, [1], {}", "It is {warm} and [dry].\n"),
        *("<|python_tag|>", "[TOOL_CALLS]", "<|python_tag|>import math", "[TOOL_CALLS] is a token", "[TOOL_CALLS]f{"),
        *("{", "[", "[]", "[TOOL_CALLS][]", "{}", '{"answer": 42}', "[1, 2]", "[link](there)", "{name: 1}"),
        # A name and no arguments, and the other way around.
        *('{"name": "Bob"}', '[{"name": "Bob"}]', '{"arguments": {}}', '[{"arguments": {}}]'),
        *('{"name": "", "arguments": {}}', '[{"name": "", "arguments": {}}]', '{"name": 5, "arguments": {}}'),
        *('{"name": null, "arguments": {}}', '[{"name": ["f"], "arguments": {}}]'),
        '{"type": "function", "function": {"name": "f", "arguments": {}}}',
    ],
)
def test_other_texts_are_content(name: str, text: str) -> None:
    assert FORMATS[name].read(text) == ParsedText(text, ())


@pytest.mark.parametrize(
    "arguments",
    [
        *('{"a": 1', '{"a": }', '{"a"}', "{a: 1}", "{'a': 1}", '{"a": 1,}', '{"a": 1 "b": 2}', '{"a": [1, 2}', "{,}"),
        *(
            "[1,]",
            "[,1]",
            "[1 2]",
            "[]]",
            "01",
            "1.",
            ".5",
            "-",
            "+1",
            "--1",
            "1e",
            "nul",
            "True",
            "NaN",
            "Infinity",
            "",
        ),
        *('"', '"\n"', '"\t"', '"\\x"', '"\\u12"', '"\\u12g4"', '"\\', '{"a": "\x00"}', '""""'),
    ],
)
def test_malformed_json_is_content(arguments: str) -> None:
    call = f'{{"name": "f", "arguments": {arguments}}}'
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(call)
    assert llama3(call) == ParsedText(call, ())
    for text in (f"[{call}]", f"[TOOL_CALLS][{call}]"):
        assert mistral(text) == ParsedText(text, ())


def test_what_is_malformed_behind_a_call_is_content() -> None:
    assert llama3(CALL + "}") == ParsedText("}", (FOUND,))
    assert mistral(f"[{CALL}}}]") == ParsedText("}]", (FOUND,))
    assert mistral(f"[{CALL}]]") == ParsedText("]", (FOUND,))


@pytest.mark.parametrize(
    "arguments",
    [
        *("{}", "[]", "null", "true", "false", "0", "-1", "1.50", "1E+2", "-0.1e-9", '""', "{ }", "[ ]", "[[], {}]"),
        *('"\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d"', '{"a" :\n1 , "a": {"a": [{}]}}', '{"é": "日本 🎉 \x7f\u2028"}'),
        '{"text": "}; {\\"name\\": \\"g\\"} [TOOL_CALLS] <|python_tag|> assistant\\n\\n"}',
    ],
)
@pytest.mark.parametrize("space", ["", " ", "\n\t\r "])
def test_arguments_are_as_they_were_written(arguments: str, space: str) -> None:
    call = space.join(["{", '"name"', ":", '"f"', ",", '"arguments"', ":", arguments, "}"])
    expected = ParsedText("", (ToolCall("f", arguments),))
    assert llama3(space + call + space) == expected
    assert mistral(space.join(["[TOOL_CALLS]", "[", call, "]", ""])) == expected
    assert mistral(space.join(["", "[", call, "]", ""])) == expected


@pytest.mark.parametrize("token", ["", "<|python_tag|>", "<|python_tag|> ", "\n<|python_tag|><|python_tag|>"])
@pytest.mark.parametrize("call", [CALL, LLAMA_CALL])
def test_llama3_calls(token: str, call: str) -> None:
    assert llama3(token + call) == ParsedText("", (FOUND,))


@pytest.mark.parametrize("separator", ["; ", ";", "\n", "", ", ", " ;\n", "<|python_tag|>", "; <|python_tag|>"])
def test_llama3_calls_in_a_row(separator: str) -> None:
    assert llama3(separator.join([CALL, OTHER_CALL, LLAMA_CALL])) == ParsedText("", (FOUND, OTHER, FOUND))
    assert llama3(CALL + separator.removesuffix("<|python_tag|>")) == ParsedText("", (FOUND,))


def test_llama3_content_around_calls() -> None:
    assert llama3(f"Let me see.\n<|python_tag|>{CALL}") == ParsedText("Let me see.\n", (FOUND,))
    assert llama3(f"{CALL}; done.") == ParsedText("; done.", (FOUND,))
    assert llama3(f"{CALL}\n\nNow <|python_tag|>{OTHER_CALL}!") == ParsedText("\n\nNow !", (FOUND, OTHER))
    # Without the token they are calls at the beginning only.
    assert llama3(f"See {CALL}") == ParsedText(f"See {CALL}", ())


def test_llama3_calls_before_malformed_ones_remain() -> None:
    assert llama3(f'{CALL}; {{"name": "g"}}') == ParsedText('; {"name": "g"}', (FOUND,))
    assert llama3(f'{CALL}; {{"name": "g", "arguments": {{') == ParsedText('; {"name": "g", "arguments": {', (FOUND,))


def test_llama3_leaves_out_an_invented_message() -> None:
    assert llama3(f"{CALL}assistant\n\nIt is warm.\n{CALL}") == ParsedText("", (FOUND,))
    assert llama3(f"{CALL}; {OTHER_CALL}\nassistant\n\n") == ParsedText("", (FOUND, OTHER))
    assert llama3(f"{CALL}assistant") == ParsedText("assistant", (FOUND,))
    assert llama3("{}assistant\n\nIt is warm.").content == "{}assistant\n\nIt is warm."


@pytest.mark.parametrize("name", FORMATS)
def test_members_of_calls(name: str) -> None:
    def read(*members: str) -> ParsedText:
        return FORMATS[name].read(("[%s]" if name == "mistral" else "%s") % f"{{{', '.join(members)}}}")

    expected = ParsedText("", (ToolCall("f", '{"x": 1}'),))
    named, arguments = '"name": "f"', '"arguments": {"x": 1}'
    assert read(arguments, named) == expected
    assert read('"id": "name"', named, '"more": [{"name": "g"}, 1]', arguments, '"type": "function"') == expected
    assert read('"n\\u0061me": "\\u0066"', '"\\u0061rguments": {"x": 1}') == expected
    # The first counts.
    assert read(named, arguments, '"name": "g"', '"arguments": {}') == expected
    assert read(named, '"more": [1, }', arguments).calls == ()
    assert read(named, arguments, '"more"').calls == ()


def test_keys_of_arguments() -> None:
    parameters = '{"name": "f", "parameters": 1, "arguments": 2}'
    assert llama3(parameters).calls == (ToolCall("f", "1"),)
    assert mistral(f"[{parameters}]").calls == (ToolCall("f", "2"),)
    assert mistral(f"[{LLAMA_CALL}]").calls == ()


def test_mistral_arrays() -> None:
    array = f"[{CALL}, {OTHER_CALL} ,{CALL}]"
    for text in (array, f"[TOOL_CALLS]{array}", f" [TOOL_CALLS] {array}\n", f"[TOOL_CALLS][TOOL_CALLS]{array}"):
        assert mistral(text) == ParsedText("", (FOUND, OTHER, FOUND))
    # The text ended too early, but behind a call.
    assert mistral(f"[{CALL}, {OTHER_CALL}") == ParsedText("", (FOUND, OTHER))
    assert mistral(f"[TOOL_CALLS]{CALL}") == ParsedText("", (FOUND,))


def test_mistral_content_around_calls() -> None:
    assert mistral(f"I look.[TOOL_CALLS][{CALL}]") == ParsedText("I look.", (FOUND,))
    assert mistral(f"I look: [TOOL_CALLS] [{CALL}] now.") == ParsedText("I look:  now.", (FOUND,))
    assert mistral(f"[[TOOL_CALLS][{CALL}]") == ParsedText("[", (FOUND,))
    assert mistral(f"[TOOL_CALLS]no [TOOL_CALLS][{CALL}]") == ParsedText("[TOOL_CALLS]no ", (FOUND,))
    assert mistral(f"[{CALL}, 5] and more") == ParsedText(", 5] and more", (FOUND,))
    # Without the token they are calls at the beginning only.
    assert mistral(f"See [{CALL}]") == ParsedText(f"See [{CALL}]", ())


@pytest.mark.parametrize("marks", ["", " ", "[ARGS]", "[CALL_ID]a1B2c3D4e[ARGS]", "[CALL_ID]a1B2c3D4e"])
def test_mistral_names_with_arguments(marks: str) -> None:
    call = f"[TOOL_CALLS]get_weather{marks}{WEATHER}"
    assert mistral(call) == ParsedText("", (FOUND,))
    assert mistral(f"Well.{call}\n[TOOL_CALLS]get_time{marks}{{}}") == ParsedText("Well.", (FOUND, OTHER))
    assert mistral(f"[TOOL_CALLS][{OTHER_CALL}]{call} ?") == ParsedText(" ?", (OTHER, FOUND))
    assert mistral(call[:-1]) == ParsedText(call[:-1], ())
    assert mistral(f"[TOOL_CALLS]get_weather{marks}[1]").calls == ()
    assert mistral(f"[TOOL_CALLS]{marks}{{}}").calls == ()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("half", ["\ud800", "\\ud800"])
def test_halves_of_surrogate_pairs_are_in_no_name(name: str, half: str) -> None:
    for text in (f'{{"name": "f{half}", "arguments": {{}}}}', f'{{"{half}": 1, "name": "f", "arguments": {{}}}}'):
        assert FORMATS[name].read(text) == ParsedText(text, ())
        assert FORMATS[name].read(f"[{text}]") == ParsedText(f"[{text}]", ())


@pytest.mark.parametrize("name", FORMATS)
def test_deep_nesting(name: str) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    call = f'{{"name": "f", "arguments": {deep}}}'
    text = call if name == "llama3" else f"[{call}]"
    assert FORMATS[name].read(text).calls == (ToolCall("f", deep),)
    assert FORMATS[name].read(text[:60_000]) == ParsedText(text[:60_000], ())
