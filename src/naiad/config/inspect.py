"""Holds the written form of a configuration against the protocol: unknown names, wrong kinds of value, and places.

All three file formats go through here, so that every finding has a line, a path and, for a misspelt name, the nearest
known one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf import text_encoding
from google.protobuf.descriptor import FieldDescriptor

from naiad.config.messages import is_repeated
from naiad.config.parsing.entries import Entry, ValueSyntax
from naiad.config.parsing.suggest import did_you_mean, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import Descriptor, EnumDescriptor

_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}
_UNSIGNED = {FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64}
_FLOATS = {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}
_LISTED_NAMES = 12
_OCTAL = re.compile(r"[-+]?\s*0[0-7]+")
_BITS = {FieldDescriptor.CPPTYPE_INT32: 31, FieldDescriptor.CPPTYPE_UINT32: 32}
_BITS |= {FieldDescriptor.CPPTYPE_INT64: 63, FieldDescriptor.CPPTYPE_UINT64: 64}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the file that the protocol does not know, at ``line`` (from 1)."""

    message: str
    line: int


@dataclass(slots=True)
class Inspection:
    """The findings of ``inspect``: problems in file order, and the place of each field path (line, column).

    ``is_text`` is True for the text format, which writes maps as pairs and where one value and a list of one are alike.
    """

    is_text: bool = False
    findings: list[Finding] = field(default_factory=list)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)

    def path_at(self, line: int, column: int) -> str:
        """The path of the last field that begins at or before the place; "" when there is none."""
        before = [(place, path) for path, place in self.places.items() if place <= (line, column)]
        return max(before)[1] if before else ""


def inspect(entries: Iterable[Entry], descriptor: Descriptor, *, is_text: bool) -> Inspection:
    """Compare ``entries``, read from the text format or from data (JSON, YAML), with the message ``descriptor``."""
    result = Inspection(is_text)
    _message(entries, descriptor, "", result)
    return result


def _message(entries: Iterable[Entry], descriptor: Descriptor, path: str, result: Inspection) -> None:
    seen: Counter[str] = Counter()
    for entry in entries:
        found = _field(descriptor, entry)
        if found is None:
            result.findings.append(Finding(_unknown_field(entry.name, descriptor, path), entry.line))
            continue
        # Inside a list null is no element, and refused below.
        if entry.syntax is ValueSyntax.EMPTY and not entry.listed:
            continue
        prefix = f"{path}.{found.name}" if path else found.name
        # The first element stands for its list.
        result.places.setdefault(prefix, (entry.line, entry.column))
        if _is_map(found):
            _map(entry, found, prefix, result)
        elif is_repeated(found):
            _value(entry, found, f"{prefix}[{seen[found.name]}]", result)
        elif seen[found.name]:
            result.findings.append(Finding(f"the field '{prefix}' is given twice, expected it once", entry.line))
        else:
            _value(entry, found, prefix, result)
        seen[found.name] += 1


def _field(descriptor: Descriptor, entry: Entry) -> FieldDescriptor | None:
    # protobuf's JSON takes names in camel case; in the text format its own parser refuses them afterwards.
    return descriptor.fields_by_name.get(entry.name) or descriptor.fields_by_camelcase_name.get(entry.name)


def _is_map(found: FieldDescriptor) -> bool:
    return found.message_type is not None and bool(found.message_type.GetOptions().map_entry)


def message_type(found: FieldDescriptor) -> Descriptor:
    """The message that a message or map field holds."""
    if found.message_type is None:
        raise TypeError(f"the field {found.name} holds no message")
    return found.message_type


def _map(entry: Entry, found: FieldDescriptor, path: str, result: Inspection) -> None:
    if not _check_message(entry, found, path, result):
        return
    pair = message_type(found)
    value = pair.fields_by_name["value"]
    if result.is_text:
        key = next((_text(e) for e in entry.entries if e.name == "key"), "")
        inside = f'{path}["{key}"]'
        result.places.setdefault(inside, (entry.line, entry.column))
        for part in entry.entries:
            if part.name == "value":
                _value(part, value, inside, result)
            elif part.name != "key":
                result.findings.append(Finding(_unknown_field(part.name, pair, path), part.line))
        return
    for member in entry.entries:
        _value(member, value, f'{path}["{member.name}"]', result)


def _text(entry: Entry) -> str:
    raw = str(entry.value)
    if entry.syntax is not ValueSyntax.TEXT:
        return raw
    try:
        return text_encoding.CUnescape(raw).decode("utf-8", "replace")
    except ValueError:
        # A broken escape: protobuf's own parser will say so.
        return raw


def _value(entry: Entry, found: FieldDescriptor, path: str, result: Inspection) -> None:
    result.places[path] = (entry.line, entry.column)
    if not result.is_text and not _is_listed_right(entry, found, path, result):
        return
    if found.message_type is not None:
        if _check_message(entry, found, path, result):
            _message(entry.entries, found.message_type, path, result)
    elif entry.syntax is ValueSyntax.MESSAGE:
        message = f"found a message for the field '{path}', expected {_expected(found)}"
        result.findings.append(Finding(message, entry.line))
    elif found.enum_type is not None:
        _enum(entry, found.enum_type, path, result)
    elif not (_fits(entry.value, found) if entry.syntax is ValueSyntax.DATA else _token_fits(entry, found)):
        message = f"found {_shown(entry.value)} for the field '{path}', expected {_expected(found)}"
        result.findings.append(Finding(message, entry.line))


def _is_listed_right(entry: Entry, found: FieldDescriptor, path: str, result: Inspection) -> bool:
    """JSON and YAML tell a list from a single value; the text format does not. One value stands for a list of it."""
    if not entry.listed or is_repeated(found) or path.endswith('"]'):
        return True
    result.findings.append(Finding(f"found a list for the field '{path}', expected one value", entry.line))
    return False


def _check_message(entry: Entry, found: FieldDescriptor, path: str, result: Inspection) -> bool:
    if entry.syntax is ValueSyntax.MESSAGE:
        return True
    known = _names(message_type(found)) if not _is_map(found) else "key and value"
    message = f"found {_shown(entry.value)} for the field '{path}', expected a message {{ ... }} with {known}"
    result.findings.append(Finding(message, entry.line))
    return False


def _enum(entry: Entry, enum: EnumDescriptor, path: str, result: Inspection) -> None:
    word = str(entry.value)
    if word in enum.values_by_name and entry.syntax is not ValueSyntax.TEXT:
        return
    number = _number(entry.value)
    if entry.syntax is not ValueSyntax.TEXT and number in {value.number for value in enum.values}:
        return
    if entry.syntax is ValueSyntax.TEXT and word in enum.values_by_name:
        message = f"found '{word}' in quotes for the field '{path}', expected the bare name {word}"
    else:
        hint = did_you_mean(word, enum.values_by_name) or ", expected one of " + ", ".join(enum.values_by_name)
        message = f"unknown value '{word}' for the field '{path}'{hint}"
    result.findings.append(Finding(message, entry.line))


def _number(value: object) -> int | None:
    # Python reads 1_000 and True as integers, protobuf does not.
    if isinstance(value, bool) or "_" in str(value):
        return None
    try:
        return int(str(value), 0)
    except ValueError:
        return None


def _fits(value: object, found: FieldDescriptor) -> bool:
    kind = found.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return isinstance(value, bool)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return isinstance(value, str)
    # A text may be a number: protobuf's JSON takes numbers in quotes.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = float(value)
        return kind in _FLOATS or (_whole(value, number) and _in_range(int(value), kind))
    except (ValueError, OverflowError):
        return False


def _token_fits(entry: Entry, found: FieldDescriptor) -> bool:
    """False where protobuf's own parser is bound to refuse the value too."""
    kind, word = found.cpp_type, str(entry.value)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return entry.syntax is ValueSyntax.TEXT
    if entry.syntax is ValueSyntax.TEXT:
        return False
    if kind in _INTEGERS | _UNSIGNED:
        # The text format takes a leading 0 as octal, which Python's ``int`` refuses.
        return _OCTAL.fullmatch(word) is not None or _is_integer(word, kind)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return word.lower() in ("true", "false", "t", "f") or _number(word) in (0, 1)
    return True


def _is_integer(word: str, kind: int) -> bool:
    # The text format allows spaces behind the sign.
    number = _number("".join(word.split()))
    return number is not None and _in_range(number, kind)


def _whole(value: float | str, number: float) -> bool:
    return isinstance(value, int | str) or number.is_integer()


def _in_range(number: int, kind: int) -> bool:
    limit = 2 ** _BITS[kind]
    return bool((0 if kind in _UNSIGNED else -limit) <= number < limit)


def _expected(found: FieldDescriptor) -> str:
    if found.enum_type is not None:
        return "one of " + ", ".join(found.enum_type.values_by_name)
    kind = found.cpp_type
    if kind in _INTEGERS | _UNSIGNED:
        bits = 64 if _BITS[kind] > 32 else 32
        return f"a whole number ({'unsigned ' if kind in _UNSIGNED else ''}{bits} bits)"
    if kind in _FLOATS:
        return "a number"
    return "true or false" if kind == FieldDescriptor.CPPTYPE_BOOL else "a text in quotes"


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _names(descriptor: Descriptor) -> str:
    return ", ".join(f.name for f in descriptor.fields) or "no fields"


def _unknown_field(name: str, descriptor: Descriptor, path: str) -> str:
    place = f"in '{path}'" if path else "in the model configuration"
    text = f"unknown field '{name}' {place}"
    if near := nearest(name, descriptor.fields_by_name):
        return f"{text}, did you mean '{near}'?"
    if home := _home(name, descriptor):
        return f"{text}, it belongs inside '{home}'"
    if len(descriptor.fields) > _LISTED_NAMES:
        return text
    return f"{text}, expected one of {_names(descriptor)}"


def _home(name: str, descriptor: Descriptor) -> str | None:
    """The nearest field of ``descriptor`` whose message has a field ``name``."""
    level: list[tuple[str, Descriptor]] = [("", descriptor)]
    for _ in range(3):
        inside = [
            (f"{path}.{f.name}" if path else f.name, f.message_type)
            for path, message in level
            for f in message.fields
            if f.message_type is not None and not _is_map(f)
        ]
        for path, message in inside:
            if name in message.fields_by_name:
                return path
        level = inside
    return None
