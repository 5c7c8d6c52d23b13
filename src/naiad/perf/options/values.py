"""Kinds of values with parts: shapes, headers, parameters of requests, models, what is swept."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from naiad.options.kinds import read_boolean
from naiad.perf.options.error import PerfOptionError
from naiad.perf.options.kinds import read_integer
from naiad.perf.options.option import ValueKind

SWEPT: Final = ("shape", "batch")
"""What ``--sweep`` can vary."""


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, colon, dims = text.rpartition(":")
    if not colon:
        raise ValueError("There must be a colon after input name.")
    return name, _dims(dims.split(","))


def _dims(parts: list[str]) -> tuple[int, ...]:
    dims = tuple(read_integer(part) for part in parts)
    if min(dims) <= 0:
        raise ValueError("The dimensions of input tensor must be > 0.")
    return dims


_PORT: Final = re.compile(r"(?:\w+://)?(?:[^:/\[\]]*|\[[^\]]*\]):([0-9]+)(?:/|$)")
"""The port of an address; one of IPv6 has brackets where a port follows it."""


def _address(text: str) -> str:
    if not text or re.search(r"[\s\0]", text):
        raise ValueError("The value must be the address of a server, such as localhost:8000.")
    port = _PORT.match(text)
    if port and not 0 < int(port[1]) < 65536:
        raise ValueError(f"The port of '{text}' is {port[1]}, expected one from 1 to 65535.")
    return text


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
        raise ValueError("The header must be specified as 'Header:Value'.")
    return name, value.strip()


def _request_parameter(text: str) -> tuple[str, Any]:
    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError("The value does not match <name:value:type>.")
    name, value, kind = parts[0], parts[1], parts[2].lower()
    if kind == "string":
        return name, value
    if kind == "int":
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}", value):
            raise ValueError(f"Expected a whole number as the value of '{name}', found '{value}'.")
        return name, int(value)
    if kind == "bool":
        return name, _boolean(name, value)
    raise ValueError(f"Unsupported type provided: '{parts[2]}'. The available options are 'bool', 'int', or 'string'.")


def _boolean(name: str, value: str) -> bool:
    try:
        return read_boolean(value)
    except ValueError:
        raise ValueError(f"Expected true or false as the value of '{name}', found '{value}'.") from None


def _composing_models(text: str) -> tuple[tuple[str, str], ...]:
    models = [model.partition(":") for model in re.sub(r"\s", "", text).split(",")]
    if not all(name for name, _, _ in models):
        raise ValueError("Expected names of models with commas between them, such as 'modelA:3,modelB'.")
    return tuple((name, version) for name, _, version in models)


def _input_source(text: str) -> str | Path:
    if text in ("zero", "random"):
        # A file of this name in the working folder comes first, as in the reference.
        return Path(text) if os.path.exists(text) else text
    if not os.path.exists(text):
        raise ValueError(
            f"Unsupported type provided: '{text}'. The available options are 'zero', 'random', path to a directory, "
            "or a json file."
        )
    return Path(text)


def _grpc_method(text: str) -> str:
    if text.count("/") != 1:
        raise PerfOptionError(
            f"Received gRPC method name '{text}' that does not match the format: <package>.<service>/<method>."
        )
    return text


def _process(text: str) -> int:
    pid = read_integer(text)
    if pid <= 0:
        raise ValueError("The value must be > 0.")
    if os.path.isdir("/proc/self") and not os.path.isdir(f"/proc/{pid}"):
        raise ValueError(f"There is no process {pid} on this machine.")
    return pid


def _shared_memory(text: str) -> str:
    if text not in ("none", "system", "cuda"):
        raise ValueError(f"Unsupported type provided: '{text}'. The available options are 'system', 'cuda', or 'none'.")
    if text == "cuda" and not has_gpu():
        raise ValueError(
            "CUDA shared memory needs an NVIDIA GPU in this machine, and none was found. Use 'system' or 'none'."
        )
    return text


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Whether the machine has the device file of NVIDIA's driver, or of its driver for WSL."""
    return any((devices / name).exists() for name in ("nvidiactl", "dxg"))


def _sweep(text: str) -> dict[str, tuple[str, ...]]:
    """The values by what they vary: ``shape=3x224x224,3x448x448,batch=1,8``."""
    found: dict[str, list[str]] = {}
    key = ""
    for part in text.split(","):
        name, mark, value = part.partition("=")
        if mark:
            key, part = name, value
        if key not in SWEPT:
            raise ValueError(f"Expected shape=... or batch=..., found '{name if mark else part}'.")
        _check_swept(key, part)
        found.setdefault(key, []).append(part)
    return {name: tuple(dict.fromkeys(values)) for name, values in found.items()}


def _check_swept(key: str, value: str) -> None:
    if key == "shape":
        swept_shapes(value)
    elif not re.fullmatch(r"[0-9]{1,9}", value) or int(value) == 0:
        raise ValueError(f"Expected a batch size > 0, found '{value}'.")


def swept_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """The shapes by input that one value of ``--sweep shape=`` stands for.

    ``INPUT0:3x224x224+INPUT1:10`` has two; ``3x224x224`` stands for the only input, whose name is left empty.

    Raises:
        ValueError: the text means nothing.
    """
    found = {}
    for part in text.split("+"):
        name, _, dims = part.rpartition(":")
        if not re.fullmatch(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*", dims):
            raise ValueError(f"Expected a shape such as 3x224x224 or INPUT0:3x224x224, found '{part}'.")
        found[name] = tuple(int(dim) for dim in dims.split("x"))
    return found


ADDRESS: Final = ValueKind("<address>", _address)
SHAPE: Final = ValueKind("<name:shape>", _shape)
HEADER: Final = ValueKind("<name:value>", _header)
REQUEST_PARAMETER: Final = ValueKind("<name:value:type>", _request_parameter)
COMPOSING_MODELS: Final = ValueKind("<name:version,...>", _composing_models)
INPUT_SOURCE: Final = ValueKind("<zero|random|path>", _input_source)
GRPC_METHOD: Final = ValueKind("<service/method>", _grpc_method)
PROCESS: Final = ValueKind("<pid>", _process)
SHARED_MEMORY: Final = ValueKind("<none|system|cuda>", _shared_memory, words=("none", "system", "cuda"))
SWEEP: Final = ValueKind("<what=value,...>", _sweep)
