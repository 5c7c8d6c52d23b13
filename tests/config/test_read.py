"""Configuration files in their three forms, right and wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format, text_format
from hypothesis import HealthCheck, given, settings

from naiad.config.messages import ModelConfig
from naiad.config.problems import ConfigProblemsError
from naiad.config.read import MAX_CONFIG_BYTES, ConfigFormat, parse_config, read_config
from naiad.config.source import ModelSource
from naiad.errors import ConfigError
from support.config_messages import messages

PBTXT = """\
name: "m"
max_batch_size: 8  # a comment with { and "
input [
  {
    name: "A" data_type: TYPE_FP32
    dims: [ -1,
            3 ]
  },
  { name: 'B' data_type: TYPE_STRING dims: 1 }
]
dynamic_batching < preferred_batch_size: [4, 8] >
parameters { key: "k\\"1" value: { string_value: "a" "b" } }
"""
JSON = """\
{
  "name": "m",
  "maxBatchSize": 8,
  "input": [
    {"name": "A", "data_type": "TYPE_FP32", "dims": [-1,
      "3"]},
    {"name": "B", "data_type": 13, "dims": [1]}
  ],
  "dynamic_batching": {"preferred_batch_size": [4, 8]},
  "parameters": {"k\\"1": {"string_value": "ab"}}
}
"""
YAML = """\
name: m
max_batch_size: 8
input:
- name: A
  data_type: TYPE_FP32
  dims: [-1,
    3]
- {name: B, data_type: TYPE_STRING, dims: [1]}
dynamic_batching: {preferred_batch_size: &sizes [4, 8]}
parameters: {'k"1': {string_value: ab}}
"""
TEXTS = {ConfigFormat.PBTXT: PBTXT, ConfigFormat.JSON: JSON, ConfigFormat.YAML: YAML}


def model(folder: Path, **files: str) -> ModelSource:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return ModelSource("m", folder)


def problems_of(text: str, form: ConfigFormat = ConfigFormat.PBTXT) -> list[tuple[int | None, str]]:
    with pytest.raises(ConfigProblemsError) as caught:
        parse_config(text, form)
    return [(problem.line, str(problem)) for problem in caught.value.problems]


def expected() -> Any:
    return text_format.Parse(PBTXT, ModelConfig())


@pytest.mark.parametrize("form", ConfigFormat)
def test_the_three_forms_say_the_same(form: ConfigFormat, tmp_path: Path) -> None:
    (tmp_path / form.value).write_text(TEXTS[form])
    read = read_config(ModelSource("m", tmp_path))
    assert read.config == expected()
    assert read.origin.file == tmp_path / form.value


@pytest.mark.parametrize(
    ("form", "lines"),
    [(ConfigFormat.PBTXT, [2, 4, 7, 9, 10, 11]), (ConfigFormat.JSON, [3, 5, 6, 7, 9, 10])],
)
def test_paths_know_their_lines(form: ConfigFormat, lines: list[int]) -> None:
    line = parse_config(TEXTS[form], form).origin.line
    paths = ["max_batch_size", "input[0]", "input[0].dims[1]", "input[1].dims[0]"]
    assert [line(path) for path in paths] == ([2, 4, 7, 9] if form is ConfigFormat.PBTXT else [3, 5, 6, 7])
    assert line('parameters["k"1"].string_value') == lines[-1] + (form is ConfigFormat.PBTXT)
    assert line("input[1].reshape.shape[3]") == line("input[1]"), "a missing field is placed at its message"
    assert line("instance_group[0].name") is None


def test_yaml_lines() -> None:
    line = parse_config(YAML, ConfigFormat.YAML).origin.line
    assert [line("input[0]"), line("input[0].dims[1]"), line("input[1].name")] == [4, 7, 8]


def test_unknown_field_names_the_nearest_and_its_message() -> None:
    text = 'name: "m"\ndynamic_batching {\n  perferred_batch_size: [ 4 ]\n}\n'
    message = "unknown field 'perferred_batch_size' in 'dynamic_batching', did you mean 'preferred_batch_size'?"
    assert problems_of(text) == [(3, message)]


def test_every_unknown_name_is_reported() -> None:
    found = problems_of("inputs { }\ninput { data_type: FP32 }\ninput { data_type: BYTES }\ngpus: 0\nzzz: 1\n")
    assert found == [
        (1, "unknown field 'inputs' in the model configuration, did you mean 'input'?"),
        (2, "unknown value 'FP32' for the field 'input[0].data_type', did you mean 'TYPE_FP32'?"),
        (3, "unknown value 'BYTES' for the field 'input[1].data_type', did you mean 'TYPE_STRING'?"),
        (4, "unknown field 'gpus' in the model configuration, it belongs inside 'instance_group'"),
        (5, "unknown field 'zzz' in the model configuration"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'input [\n  { name: "A"\n    dims: [ 1 ] }\n\noutput [ { name: "B" } ]\n',
            "; the '[' of line 1 is not closed",
        ),
        (
            "name: 'm'\ndynamic_batching {\n  max_queue_delay_microseconds: 5\n\ninstance_group [ { count: 1 } ]\n",
            "has no field named \"instance_group\"; the '{' of line 2 is not closed",
        ),
        ('input [\n  { name: "A"  # the }\n]\n', "; the '{' of line 2 is not closed before the ']' of line 3"),
        ('input [ { name: "[",\n dims: [ 1, 2 } ]', "; the '[' of line 2 is not closed before the '}' of line 2"),
        ("max_batch_size: 3\n}\n", "; the '}' of line 2 closes nothing"),
        ("instance group [ { count: 2 } ]", "; a field's name is one word, did you mean 'instance_group'?"),
        ("input { data type: TYPE_FP32 }", "; a field's name is one word, did you mean 'data_type'?"),
        ("dynamic_batchin { max_queue_delay }", "; did you mean 'dynamic_batching'?"),
        ("version_policy {\n  latest <\n    num_versions: 1\n}\n", "; the '<' of line 2 is not closed before"),
    ],
)
def test_a_syntax_error_has_a_hint(text: str, words: str) -> None:
    """After the words of protobuf's own parser, which see only where it gave up."""
    with pytest.raises(ConfigProblemsError) as error:
        parse_config(text, ConfigFormat.PBTXT)
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text", ['name: "x\ninput [ { } ]\n', "input [ { name = 3 } ]\n", 'input [ { name: "]" dims: [ 1 "a" ] } ]\n']
)
def test_brackets_are_not_blamed_for_another_mistake(text: str) -> None:
    with pytest.raises(ConfigProblemsError) as error:
        parse_config(text, ConfigFormat.PBTXT)
    assert "is not closed" not in str(error.value)
    assert "closes nothing" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("max_batch_size: banana", 1, "found 'banana' for the field 'max_batch_size', expected a whole number"),
        ("\nmax_batch_size: 99999999999", 2, "expected a whole number (32 bits)"),
        ("\n\nname: 3", 3, "expected a text in quotes"),
        ("input { optional: maybe }", 1, "expected true or false"),
        ('input { data_type: "TYPE_FP32" }', 1, "expected the bare name TYPE_FP32"),
        ("input { data_type: 99 }", 1, "unknown value '99'"),
        ("input { data_type: 99999999999999999999 }", 1, "unknown value"),
        ("input { reshape: 3 }", 1, "expected a message { ... } with shape"),
        ("max_batch_size { }", 1, "found a message"),
        ('name: "a"\nname: "b"', 2, "given twice"),
        ('name: "a', 1, "missing ending quote"),
        ("input {\n name: 'a'\n", 2, ""),
        ("dynamic_batching { }\nsequence_batching { }", 2, "another member of oneof"),
        ("name: \x00", 1, ""),
        ("input {" * 5000, 1, "has no field named"),
    ],
)
def test_wrong_pbtxt(text: str, line: int, words: str) -> None:
    found = problems_of(text)
    assert (found[0][0], words.lower() in found[0][1].lower()) == (line, True), found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("{", 1, "Expecting property name"),
        ('{"name": "a",\n"x"}', 2, "Expecting ':' delimiter"),
        ("[]", 1, "expected a JSON object"),
        ("{}\n{}", 1, "after the end"),
        ('{"name": "a",\n "name": "b"}', 2, "the key 'name' is given twice"),
        ('{"maxBatchSize": 1,\n"max_batch_size": 1}', 2, "given twice"),
        ('{"input": 1}', 1, "expected a message { ... } with name"),
        ('{"input": {"name": 1}}', 1, "found 1 for the field 'input[0].name', expected a text"),
        ('{"max_batch_size": [1]}', 1, "found a list for the field 'max_batch_size', expected one value"),
        ('{"input": [[1]]}', 1, "list inside a list"),
        ('{"input": [{"dims": [1.5]}]}', 1, "expected a whole number (64 bits)"),
        ('{"max_batch_size": true}', 1, "found true for the field 'max_batch_size'"),
        ('{"parameters": {"a": 1}}', 1, "expected a message { ... } with string_value"),
        ('{"name": "a",\n "iput": []}', 2, "did you mean 'input'?"),
        ('{"iput": null}', 1, "did you mean 'input'?"),
        ('{"max_batch_size": 1e400}', 1, "expected a whole number"),
        ('{"a":' * 100, 1, "nested deeper"),
    ],
)
def test_wrong_json(text: str, line: int, words: str) -> None:
    found = problems_of(text, ConfigFormat.JSON)
    assert (found[0][0], words in found[0][1]) == (line, True), found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: [", 1, "found '<stream end>'"),
        ("- a", 1, "expected fields"),
        ("name: a\nname: b", 2, "given twice"),
        ("name: a\nplatform: no", 2, "found false for the field 'platform', expected a text in quotes"),
        ("name: !!python/object:os.system x", 1, "constructor"),
        ("input: &a [*a]", 1, "list inside a list"),
        ("input: [&a {reshape: *a}]", 1, "nested deeper than 64 levels"),
        ("a: &a {b: 1}\nc: {<<: *a}", 2, "merge keys"),
        ("name: 2020-13-45", 1, "put it in quotes"),
        ("name: a\n\tbackend: b", 2, "cannot start any token"),
    ],
)
def test_wrong_yaml(text: str, line: int, words: str) -> None:
    found = problems_of(text, ConfigFormat.YAML)
    assert (found[0][0], words in found[0][1]) == (line, True), found


def test_aliases_that_multiply_are_stopped() -> None:
    doubling = "\n".join(f"- &a{n + 1} {{reshape: *a{n}, x: *a{n}}}" for n in range(40))
    found = problems_of(f"input:\n- &a0 {{name: a}}\n{doubling}", ConfigFormat.YAML)
    assert "more than 100000 values" in found[0][1]


def test_null_and_empty_lists_leave_a_field_as_it_is() -> None:
    text = '{"name": null, "input": [], "instance_group": null, "dynamic_batching": {"preferred_batch_size": []}}'
    for form in (ConfigFormat.JSON, ConfigFormat.YAML):
        config = parse_config(text, form).config
        assert config.ListFields() == [(config.DESCRIPTOR.fields_by_name["dynamic_batching"], config.dynamic_batching)]


def test_a_huge_enumeration_number_before_a_syntax_error() -> None:
    assert "out of range" in problems_of("input { data_type: 99999999999999999999 } }")[0][1]


def test_escapes_that_are_no_utf_8() -> None:
    assert problems_of('name: "\\xff"')
    assert problems_of('parameters { key: "\\u12" }')


def test_an_empty_file_is_an_empty_configuration(tmp_path: Path) -> None:
    for form in ConfigFormat:
        assert parse_config("", form).config == ModelConfig()
    assert read_config(model(tmp_path, config_pbtxt="")).config == ModelConfig(name="m")


def test_without_a_file_the_configuration_is_empty(tmp_path: Path) -> None:
    read = read_config(ModelSource("m", tmp_path))
    assert (read.config, read.origin.file) == (ModelConfig(name="m"), None)


def test_two_files_are_one_too_many(tmp_path: Path) -> None:
    source = model(tmp_path, config_json="{}", config_yaml="")
    with pytest.raises(ConfigError, match=r"found config\.json, config\.yaml .* keep config\.json"):
        read_config(source)


def test_beside_config_pbtxt_no_other_file_counts(tmp_path: Path) -> None:
    source = model(tmp_path, config_json='{"architectures": ["GPT2LMHeadModel"]}', config_pbtxt="max_batch_size: 3")
    assert read_config(source).config.max_batch_size == 3


def test_custom_configuration_by_name(tmp_path: Path) -> None:
    source = model(tmp_path, config_pbtxt="max_batch_size: 1")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "big.pbtxt").write_text("max_batch_size: 64")
    assert read_config(source, "big").config.max_batch_size == 64
    assert read_config(source, "none").config.max_batch_size == 1


def test_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_bytes(b"\xef\xbb\xbfmax_batch_size: 2\r\n")
    assert read_config(ModelSource("m", tmp_path)).config.max_batch_size == 2


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b'name: "a"\nplatform: "\xff"', 2, "not UTF-8: found the byte 0xff"),
        ('name: "a"'.encode("utf-16"), 1, "found UTF-16"),
        (b"#" * (MAX_CONFIG_BYTES + 1), None, f"expected at most {MAX_CONFIG_BYTES}"),
    ],
)
def test_files_that_are_no_text(content: bytes, line: int | None, words: str, tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(ModelSource("m", tmp_path))
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line) == (tmp_path / "config.pbtxt", line)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").mkdir()
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read_config(ModelSource("m", tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").touch(mode=0)
    with pytest.raises(ConfigError, match="Permission denied"):
        read_config(ModelSource("m", tmp_path))


@pytest.mark.slow
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(messages(ModelConfig))
def test_text_round_trip(config: Any) -> None:
    for text in (text_format.MessageToString(config), text_format.MessageToString(config, as_utf8=True)):
        read = parse_config(text, ConfigFormat.PBTXT)
        assert read.config == config
        assert not text or read.origin.lines


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(messages(ModelConfig))
def test_json_and_yaml_round_trip(config: Any) -> None:
    data = json_format.MessageToDict(config, preserving_proto_field_name=True)
    assert parse_config(json.dumps(data, indent=1), ConfigFormat.JSON).config == config
    assert parse_config(yaml.safe_dump(data), ConfigFormat.YAML).config == config


def test_an_unknown_field_with_a_list_is_said_once() -> None:
    with pytest.raises(ConfigProblemsError) as caught:
        parse_config("dynamic_batching { perferred_batch_size: [ 4, 8 ] }", ConfigFormat.PBTXT)
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("form", [ConfigFormat.JSON, ConfigFormat.YAML])
def test_one_value_stands_for_a_list_of_it(form: ConfigFormat) -> None:
    # As the reference takes the configuration of a load.
    text = """{"instance_group": {"count": 2, "gpus": 0}, "input": [{"name": "a", "dims": 3}],
        "ensembleScheduling": {"step": {"model_name": "m", "input_map": {"x": "y"}}},
        "model_warmup": {"name": "w", "inputs": {"a": {"dims": 4}}}, "max_batch_size": 4}"""
    found = parse_config(text, form).config
    assert (found.instance_group[0].count, list(found.instance_group[0].gpus)) == (2, [0])
    assert list(found.input[0].dims) == [3]
    assert dict(found.ensemble_scheduling.step[0].input_map) == {"x": "y"}
    assert list(found.model_warmup[0].inputs["a"].dims) == [4]
    assert found.max_batch_size == 4


def test_json_may_be_what_python_prints_of_a_dict() -> None:
    found = {"name": "it's", "backend": 'a "b"', "default_model_filename": """'c' "d" \\'""", "max_batch_size": 4,
             "input": [{"name": "x, }", "data_type": "TYPE_FP32", "dims": [1, 2]}]}  # fmt: skip
    wanted = parse_config(json.dumps(found), ConfigFormat.JSON).config
    assert parse_config(str(found), ConfigFormat.JSON).config == wanted
    assert wanted.default_model_filename == found["default_model_filename"]


def test_a_comma_in_json_may_stand_at_the_end() -> None:
    text = '{"name": ",]", "input": [{"name": "x", "dims": [1, 2,],},\n ],}'
    config = parse_config(text, ConfigFormat.JSON).config
    assert (config.name, list(config.input[0].dims)) == (",]", [1, 2])
    for wrong in ("{,}", '{"input": [,]}', '{"name": "a",,}', '{"name": ,}'):
        assert problems_of(wrong, ConfigFormat.JSON)


def test_keys_in_json_may_be_without_quotes() -> None:
    text = '{name: "a,b: {c: 1}", "max_batch_size": 4,\n  dynamic_batching : {preferred_batch_size: [2, 4]}, input:[]}'
    config = parse_config(text, ConfigFormat.JSON).config
    assert (config.name, config.max_batch_size) == ("a,b: {c: 1}", 4)
    assert list(config.dynamic_batching.preferred_batch_size) == [2, 4]
    for wrong in ("{name 4}", '{"name": a: 1}', "{1a: 2}", "{na-me: 2}", "{nam: 2}"):
        assert problems_of(wrong, ConfigFormat.JSON)
