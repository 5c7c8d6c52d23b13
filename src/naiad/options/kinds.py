"""The kinds of option values: the parser of each, and the description of valid values for errors.

The texts of the errors are the reference server's own (``command_line_parser.cc``), since people search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from naiad.options.header_pattern import HeaderPattern
from naiad.options.remote_uri import SCHEMES, RemoteUri, is_remote

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_PROCESSES = 64
MAX_PORT = 65535

_TRUE = ("true", "on", "1")
_FALSE = ("false", "off", "0")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?[0-9]+\.[0-9]*")
_SIZE = re.compile(r"([0-9]{1,19})([KMGT]i?B)?", re.IGNORECASE)
_SHIFTS = {"": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40}
_SETTING = re.compile(r"(?:(?P<name>[^,=]+),)?(?P<key>[^,=]+)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    ``read`` converts the text to the value and raises ValueError for a wrong one; ``expected`` describes valid values
    in words; ``label`` stands for the value in the help text. A flag takes no value on the command line.
    """

    label: str
    expected: str
    read: Callable[[str], Any]
    is_flag: bool = False


@dataclass(frozen=True, slots=True)
class BackendSetting:
    """One ``--backend-config`` value; ``backend`` is "" for a setting of all backends."""

    backend: str
    key: str
    value: str


def read_boolean(text: str) -> bool:
    """True or False for the words that the reference accepts, in any case."""
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise ValueError(f"invalid value for bool option: {text}")


def integer(minimum: int, maximum: int = INT32_MAX, below: str = "", above: str = "") -> Kind:
    """A whole number of a range.

    ``below`` and ``above`` are the texts of the errors for a number under the minimum and over the maximum, where the
    reference has special ones.
    """

    def read(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"Invalid option value. Got {text}")
        # A number of thousands of digits is refused before int() refuses it in other words.
        value = int(text) if len(text) <= 20 else maximum + 1
        if value < minimum and below:
            raise ValueError(below)
        if value > maximum and above:
            raise ValueError(above)
        if not minimum <= value <= maximum:
            raise ValueError(f"Provided option value is out of bound. Got {text}")
        return value

    return Kind("<integer>", f"an integer from {minimum} to {maximum}", read)


def _read_milliseconds(text: str) -> int:
    # The reference's help promises a number, and its parser takes the whole part of it.
    whole = text.partition(".")[0] if _DECIMAL.fullmatch(text) else text
    found: int = integer(1).read(whole)
    return found


def choice(*words: str, ignore_case: bool = False) -> Kind:
    """One of ``words``."""

    def read(text: str) -> str:
        word = text.lower() if ignore_case else text
        if word in words:
            return word
        raise ValueError(f"Invalid option value. Got {text}")

    return Kind("<" + "|".join(words) + ">", " or ".join(repr(w) for w in words), read)


def _read_processes(text: str) -> int:
    found: int = 0 if text.lower() == "auto" else integer(1, MAX_PROCESSES).read(text)
    return found


def _read_level(text: str) -> int:
    if text.lower() in ("true", "on", "false", "off"):
        return int(read_boolean(text))
    level: int = integer(0).read(text)
    return level


def _read_address(text: str) -> str:
    host = text
    if text.startswith("ipv6:"):
        host = text.removeprefix("ipv6:").removeprefix("[").removesuffix("]")
    if not host or re.search(r"[\s/\[\]]", host):
        raise ValueError(f"Invalid option value. Got {text}")
    return host


def read_repository(text: str) -> Path | RemoteUri:
    """The path of a local folder or file, or the address of a remote repository."""
    if not text or "\0" in text:
        raise ValueError("Invalid option value. The path is empty or holds a NUL character")
    if is_remote(text):
        return RemoteUri(text)
    scheme, mark, _ = text.partition("://")
    if mark:
        raise ValueError(f"{scheme}:// storage is not supported by naiad, only {', '.join(SCHEMES)}. Got {text}")
    return Path(text)


def _read_local(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("Invalid option value. The path is empty or holds a NUL character")
    return text


def _read_file_name(text: str) -> str:
    if "\0" in text:
        raise ValueError("Invalid option value. The path holds a NUL character")
    return text


def _read_config_name(text: str) -> str:
    if not text:
        raise ValueError("Error: empty argument for --model-config-name")
    if "/" in text or "\0" in text or any(map(str.isspace, text)) or text in (".", ".."):
        raise ValueError(f"Invalid option value. Got {text}")
    return text


def _read_header_pattern(text: str) -> str:
    HeaderPattern(text)
    return text


def _read_size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    unit = (found[2] or "").lower() if found else ""
    # A kB may be 1000 or 1024 bytes.
    if found is None or unit not in _SHIFTS:
        raise ValueError(f"Invalid option value. Got {text}")
    value = int(found[1]) << _SHIFTS[unit]
    if value > INT64_MAX:
        raise ValueError(f"Provided option value is out of bound. Got {text}")
    return value


def _read_backend_setting(text: str) -> BackendSetting:
    found = _SETTING.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid option value. Got {text}")
    # Otherwise a wrong number would show only when a model is loaded.
    if found["key"] == "default-max-batch-size":
        integer(0).read(found["value"])
    return BackendSetting(found["name"] or "", found["key"], found["value"])


BOOLEAN = Kind("<boolean>", "true, on, 1, false, off or 0", read_boolean)
FLAG = Kind("", "true, on, 1, false, off or 0", read_boolean, is_flag=True)
SIZE = Kind("<bytes>", "a number of bytes, or one of KiB, MiB, GiB or TiB, such as 4GiB", _read_size)
TEXT = Kind("<text>", "a text", str)
LEVEL = Kind("<integer>", "a level from 0, or true or false", _read_level)
PROCESSES = Kind("<integer|auto>", f"an integer from 1 to {MAX_PROCESSES}, or auto", _read_processes)
"""A number of processes; 0 stands for auto."""
MILLISECONDS = Kind("<number>", f"a number from 1 to {INT32_MAX}", _read_milliseconds)
"""Milliseconds, of which the whole part counts."""
PORT = Kind("<integer>", f"an integer from 0 to {MAX_PORT}", integer(-INT32_MAX - 1).read)
"""The number of a port. Others are read too: they are wrong only where the port is opened."""
ADDRESS = Kind("<address>", "a host name, an IPv4 address, or IPv6 as ipv6:[::1]", _read_address)
REPOSITORY = Kind("<path>", "the path of a local folder, or an address such as s3://bucket/path", read_repository)
MIRROR = Kind("<path>", "the path of a local folder", _read_local)
FOLDER_NAME = Kind("<path>", "the path of a folder", _read_file_name)
FILE_NAME = Kind("<path>", "the path of a file", _read_file_name)
HEADER_PATTERN = Kind("<pattern>", "a regular expression of RE2 that finds names of headers", _read_header_pattern)
CONFIG_NAME = Kind("<name>", "a file name without folder, spaces and ending", _read_config_name)
BACKEND_SETTING = Kind("<setting>", "<backend>,<key>=<value>, or <key>=<value> for all backends", _read_backend_setting)
