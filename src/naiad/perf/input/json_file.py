"""The files of ``--input-data``: their text, and the steps that it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from naiad.errors import MalformedRequestError
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.location import Location
from naiad.wire.json_text import kind_of, load_json


@dataclass(frozen=True, slots=True)
class JsonStep:
    """One step as it stands in the file, with the outputs that go with it."""

    value: dict[str, Any]
    expected: dict[str, Any]
    where: Location


@dataclass(slots=True)
class JsonStreams:
    """The steps of one file.

    Attributes:
        is_nested: whether the file has a list of lists, each of which is a stream.
        streams: their steps; one stream where ``is_nested`` is false.
    """

    is_nested: bool
    streams: list[list[JsonStep]]


def read_file(file: Path, *, stream: int = 0, step: int = 0) -> JsonStreams:
    """The steps of a file.

    Args:
        stream: the number of the first stream of a file with lists of steps; earlier files have those before.
        step: the number of the first step of a file without lists.

    Raises:
        PerfInputError: the file cannot be read, is no JSON, or does not hold steps.
    """
    value = _load(file)
    if not isinstance(value, dict) or "data" not in value:
        found = f"the members {', '.join(value) or 'none'}" if isinstance(value, dict) else kind_of(value)
        raise PerfInputError(f"The json file doesn't contain data field: found {found} in '{file}', expected \"data\"")
    data, expected = value.pop("data"), value.pop("validation_data", None)
    _check_list(data, "data", file)
    if not data or data == [[]] * len(data):
        raise PerfInputError(f"'{file}' holds no step: \"data\" is empty")
    is_nested = isinstance(data[0], list)
    if any(isinstance(item, list) is not is_nested for item in data):
        raise inconsistent(file)
    if not is_nested:
        return JsonStreams(False, [_steps(data, expected, Location(file, 0, step))])
    outputs = [None] * len(data) if expected is None else _aligned(data, expected, file)
    starts = (Location(file, stream + index) for index in range(len(data)))
    return JsonStreams(True, [_steps(*given) for given in zip(data, outputs, starts, strict=True)])


def inconsistent(file: Path) -> PerfInputError:
    """Lists of steps stand beside steps."""
    return PerfInputError(
        "Inconsistency in input-data provided. Can not have a combination of objects and arrays inside of the Data "
        f"array: found both, the second kind in '{file}'"
    )


def _steps(data: list[Any], expected: Any, start: Location) -> list[JsonStep]:
    outputs: list[Any] = [{}] * len(data) if expected is None else _aligned(data, expected, start.file)
    return list(_checked(data, outputs, start))


def _checked(data: list[Any], outputs: list[Any], start: Location) -> Iterator[JsonStep]:
    for index, (value, expected) in enumerate(zip(data, outputs, strict=True)):
        where = Location(start.file, start.stream, start.step + index)
        for found in (value, expected):
            if not isinstance(found, dict):
                raise PerfInputError(
                    f"Input data file is malformed. {where}: found {kind_of(found)}, expected an object with a tensor "
                    "for each name"
                )
        yield JsonStep(value, expected, where)


def _aligned(data: list[Any], expected: Any, file: Path) -> list[Any]:
    _check_list(expected, "validation_data", file)
    if len(expected) != len(data) or any(
        isinstance(e, list) is not isinstance(d, list) for e, d in zip(expected, data, strict=True)
    ):
        raise PerfInputError(
            f"The 'validation_data' field doesn't align with 'data' field in the json file '{file}': found "
            f"{len(expected)} entries, expected {len(data)} of the same kind"
        )
    return list(expected)


def _check_list(value: Any, name: str, file: Path) -> None:
    if not isinstance(value, list):
        raise PerfInputError(
            f"Input data file is malformed. \"{name}\" in '{file}' is {kind_of(value)}, expected an array of steps"
        )


def _load(file: Path) -> Any:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise PerfInputError(f"failed to open file for reading provided data: '{file}': {error.strerror}") from None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        strict: json.JSONDecodeError = error
    try:
        # Reads the bare words NaN and Infinity, and text behind the mark of UTF-8.
        return load_json(raw)
    except MalformedRequestError:
        raise _broken(file, raw, strict) from None


def _broken(file: Path, raw: bytes, error: json.JSONDecodeError) -> PerfInputError:
    line, column, reason = error.lineno, error.colno, error.msg
    try:
        raw.decode()
    except UnicodeDecodeError as wrong:
        before = raw[: wrong.start]
        line, column = before.count(b"\n") + 1, wrong.start - before.rfind(b"\n")
        reason = f"the byte 0x{raw[wrong.start]:02x} is not UTF-8"
    return PerfInputError(
        f"failed to parse the specified json file for reading provided data: '{file}', line {line}, column {column}: "
        f"{reason}"
    )
