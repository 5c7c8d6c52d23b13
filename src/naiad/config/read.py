"""Reads a model's configuration file: config.pbtxt, config.json or config.yaml, the same fields in three forms."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format, text_format

from naiad.config.inspect import Inspection, inspect
from naiad.config.messages import field_names, message_class
from naiad.config.parsing.entries import EntrySyntaxError
from naiad.config.parsing.json import read_json_entries
from naiad.config.parsing.single_values import with_lists
from naiad.config.parsing.suggest import did_you_mean
from naiad.config.parsing.text import misplaced_bracket, read_text_entries, split_name
from naiad.config.parsing.yaml import read_yaml_entries
from naiad.config.problems import ConfigProblemsError, Origin
from naiad.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.source import ModelSource

logger = logging.getLogger("naiad")

MAX_CONFIG_BYTES = 1 << 20
_UNKNOWN = re.compile(r'has no field named "(\w+)"')
# A text first, so that nothing within one is taken for a key. Then one in single quotes, a key, and a comma at the end.
_LOOSE_JSON = re.compile(
    r"""
    "(?:[^"\\]|\\.)*"
    |'(?P<text>(?:[^'\\]|\\.)*)'
    |(?P<before>[{,]\s*)(?P<key>[A-Za-z_]\w*)\s*:
    |(?<=[\w"'}\]]),(?P<end>\s*[}\]])
    """,
    re.DOTALL | re.VERBOSE,
)
_QUOTES = re.compile(r'\\.|"', re.DOTALL)


class ConfigFormat(Enum):
    """The forms a configuration can have; the value is the file name in a model's folder, in order of precedence."""

    PBTXT = "config.pbtxt"
    JSON = "config.json"
    YAML = "config.yaml"


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """A configuration as written: the ``ModelConfig`` message (to be copied before it is changed) and its places."""

    config: Any
    origin: Origin


def read_config(source: ModelSource, model_config_name: str = "") -> ReadConfig:
    """The configuration of ``source``, empty when it brings none; ``name`` is filled in where it is left out.

    ``model_config_name`` asks for ``configs/<name>.pbtxt`` and falls back to the model's own file.

    Raises:
        ConfigError: two files compete, or the file cannot be read.
        ConfigProblemsError: the file cannot be parsed.
    """
    file = source.config_file
    if source.directory is not None:
        file = find_config_file(source.directory, model_config_name)
    read = ReadConfig(message_class("ModelConfig")(), Origin())
    if file is not None:
        text, form = _text(file), _format(file)
        if form is ConfigFormat.JSON and _is_of_another_program(text):
            logger.warning("%s is not read: it has no field of a model configuration", file)
        else:
            read = parse_config(text, form, file)
    if source.is_renamed or not read.config.name:
        read.config.name = source.name
    return read


def _is_of_another_program(text: str) -> bool:
    """Whether a config.json has none of the fields: the reference does not read such files, others write them."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value:
        return False
    known = message_class("ModelConfig").DESCRIPTOR.fields
    return value.keys().isdisjoint({name for field in known for name in (field.name, field.json_name)})


def config_files(directory: Path) -> list[Path]:
    """The configuration files that lie in a model's folder, in order of precedence."""
    # Unlike Path.exists, False for a file in a folder that may not be entered.
    return [directory / f.value for f in ConfigFormat if os.path.exists(directory / f.value)]


def find_config_file(directory: Path, model_config_name: str = "") -> Path | None:
    """The file that configures the model in ``directory``, None when there is none.

    Beside config.pbtxt the others count for nothing: the reference does not know them, and other programs keep files of
    these names in the same folder.

    Raises:
        ConfigError: config.json and config.yaml are there, and config.pbtxt is not.
    """
    if model_config_name:
        custom = directory / "configs" / f"{model_config_name}.pbtxt"
        if os.path.exists(custom):
            return custom
    present = config_files(directory)
    if len(present) > 1 and present[0].name != ConfigFormat.PBTXT.value:
        names = ", ".join(file.name for file in present)
        message = f"found {names} in '{directory}', expected one: keep {present[0].name} or remove it"
        raise ConfigError(message, present[0])
    return present[0] if present else None


def parse_config(text: str, config_format: ConfigFormat, file: Path | None = None) -> ReadConfig:
    """The configuration that ``text`` holds.

    Raises:
        ConfigProblemsError: every unknown name and wrong value in it, or the parser's own finding.
    """
    config = message_class("ModelConfig")()
    try:
        if config_format is ConfigFormat.PBTXT:
            inspection = _parse_pbtxt(text, config, file)
        else:
            inspection = _parse_data(text, config_format, config, file)
    except EntrySyntaxError as error:
        raise ConfigProblemsError([ConfigError(str(error), file, error.line)]) from None
    lines = {path: line for path, (line, _) in inspection.places.items()}
    return ReadConfig(config, Origin(file, lines))


def _parse_pbtxt(text: str, config: Any, file: Path | None) -> Inspection:
    try:
        # Before protobuf's parser, which stops at its first finding.
        inspection = inspect(read_text_entries(text), config.DESCRIPTOR, is_text=True)
    except EntrySyntaxError as error:
        # protobuf's own words are what users know and search for, so its parser speaks first.
        hint = misplaced_bracket(text) or _meant_name(text, error.line)
        _parse_text_format(text, config, Inspection(), file, hint)
        raise EntrySyntaxError(_with_hint(str(error), hint), error.line, error.column) from None
    _raise_findings(inspection, file)
    _parse_text_format(text, config, inspection, file)
    return inspection


def _meant_name(text: str, line: int) -> str:
    """A hint at the field that a line writes in several words; "" when there is none."""
    name = split_name(text, line, field_names("ModelConfig"))
    return f"a field's name is one word, did you mean '{name}'?" if name else ""


def _with_hint(message: str, hint: str) -> str:
    return f"{message.removesuffix('.')}; {hint}" if hint else message


def _parse_text_format(text: str, config: Any, inspection: Inspection, file: Path | None, hint: str = "") -> None:
    try:
        text_format.Parse(text, config)
    except text_format.ParseError as error:
        raise ConfigProblemsError([_text_format_error(error, inspection, file, hint)]) from None
    except ValueError as error:
        # protobuf lets a number that fits no enumeration through to here, without a place.
        raise ConfigProblemsError([ConfigError(str(error), file)]) from None
    except RecursionError:
        raise EntrySyntaxError("nested too deep", 1, 1) from None


def _text_format_error(
    error: text_format.ParseError, inspection: Inspection, file: Path | None, hint: str
) -> ConfigError:
    line, column = error.GetLine(), error.GetColumn()
    message = str(error)
    if not hint and (unknown := _UNKNOWN.search(message)):
        hint = did_you_mean(unknown[1], field_names("ModelConfig")).removeprefix(", ")
    message = _with_hint(message, hint)
    if line is None:
        return ConfigError(message, file)
    # The place is part of the ``ConfigError``.
    finding = message.removeprefix(f"{line}:{column} : ")
    path = inspection.path_at(line, column or 0)
    return ConfigError(f"{finding} (at '{path}')" if path else finding, file, line)


def _parse_data(text: str, config_format: ConfigFormat, config: Any, file: Path | None) -> Inspection:
    if config_format is ConfigFormat.JSON:
        text = _LOOSE_JSON.sub(_as_json, text)
        inspection = inspect(read_json_entries(text), config.DESCRIPTOR, is_text=False)
        data = json.loads(text) if text.strip() else {}
    else:
        entries, data = read_yaml_entries(text)
        inspection = inspect(entries, config.DESCRIPTOR, is_text=False)
    _raise_findings(inspection, file)
    try:
        json_format.ParseDict(with_lists(data, config.DESCRIPTOR), config)
    except json_format.ParseError as error:
        raise ConfigProblemsError([ConfigError(str(error), file)]) from None
    return inspection


def _as_json(found: re.Match[str]) -> str:
    """What protobuf's own reader in C++ takes beside proper JSON, as such: what Python prints of a dict, say."""
    if found["key"]:
        return f'{found["before"]}"{found["key"]}":'
    if found["end"]:
        return found["end"]
    if found["text"] is None:
        return found[0]
    inner = _QUOTES.sub(lambda quote: {"\\'": "'", '"': r"\""}.get(quote[0], quote[0]), found["text"])
    return f'"{inner}"'


def _raise_findings(inspection: Inspection, file: Path | None) -> None:
    # Each element of a list is an entry of its own, and all of them stand under the same unknown field.
    findings = dict.fromkeys(inspection.findings)
    if findings:
        raise ConfigProblemsError([ConfigError(found.message, file, found.line) for found in findings])


def _format(file: Path) -> ConfigFormat:
    suffixes = {".pbtxt": ConfigFormat.PBTXT, ".json": ConfigFormat.JSON, ".yaml": ConfigFormat.YAML}
    return suffixes.get(file.suffix, ConfigFormat.PBTXT)


def _text(file: Path) -> str:
    try:
        size = _regular_size(file)
        if size > MAX_CONFIG_BYTES:
            message = f"the configuration is {size} bytes large, expected at most {MAX_CONFIG_BYTES}"
            raise ConfigError(message, file)
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration: {error.strerror}", file) from None
    return _decoded(content, file)


def _regular_size(file: Path) -> int:
    """The size of a file, in bytes; reading a pipe or a device would wait or never end."""
    found = file.stat()
    # A folder passes, since the error of reading it says what it is.
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise ConfigError("the configuration is a pipe or a device, expected a plain file", file)
    return found.st_size


def _decoded(content: bytes, file: Path) -> str:
    try:
        # Some editors write a byte order mark.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"found the byte 0x{content[error.start]:02x}"
        if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
            found = "found UTF-16"
        raise ConfigError(f"the configuration is not UTF-8: {found}; save the file as UTF-8", file, line) from None
