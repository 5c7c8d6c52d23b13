"""``naiad infer``: one inference request from the shell."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.cli.headers import read_headers
from naiad.cli.infer_options import SUFFIXES, parser
from naiad.errors import InvalidArgumentError, NaiadError

if TYPE_CHECKING:
    from naiad.client import Client

NPY: Final = ".npy"
_DECOUPLED: Final = 501
"""The status of a request for one response, where a model sends any number."""


def infer(argv: Sequence[str]) -> int:
    """Send a request and print the outputs; returns the exit code."""
    options = parser().parse_args(argv)
    if options.save is not None and not options.save.parent.is_dir():
        print(f"error: --save {options.save}: there is no folder '{options.save.parent}'", file=sys.stderr)
        return 1
    # Imported here: --help does not pay for it.
    from naiad.client import Client

    try:
        with Client(options.url, headers=read_headers(options.header), timeout_s=options.timeout) as client:
            metadata = client.metadata(options.model, options.version)
            datatypes = {entry["name"]: entry["datatype"] for entry in metadata["inputs"]}
            ranks = {entry["name"]: len(entry["shape"]) for entry in metadata["inputs"]}
            given = _named(options.input, datatypes)
            config = client.config(options.model, options.version) if any(map(_is_image, given.values())) else {}
            inputs = {
                name: _of_rank(_value(text, name, datatypes[name], config, options.scaling), ranks[name])
                for name, text in given.items()
            }
            _show_responses(client, options, inputs)
    except NaiadError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: '{error.filename}': {error.strerror}" if error.filename else f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _show_responses(client: Client, options: argparse.Namespace, inputs: Mapping[str, Any]) -> None:
    """Send the request and print its response, or over gRPC all responses of a decoupled model."""
    from naiad.client import ResponseError

    try:
        found = client.infer(options.model, inputs, version=options.version, outputs=options.output)
    except ResponseError as error:
        if error.status != _DECOUPLED:
            raise
        if not options.url.startswith("grpc"):
            address = "--url grpc://<host>:<gRPC port>, such as grpc://localhost:8001"
            raise InvalidArgumentError(f"{error}; gRPC has all responses: {address}") from None
    else:
        _show(found, options.save)
        return
    if options.save is not None:
        raise InvalidArgumentError(f"--save: the model '{options.model}' is decoupled, expected one response")
    for found in client.stream(options.model, inputs, version=options.version, outputs=options.output):
        _show(found, None)


def _of_rank(value: Any, rank: int) -> Any:
    """A list or an array with as many dimensions as the model's input: those in front that it lacks are 1."""
    if not isinstance(value, list):
        return value.reshape((1,) * (rank - value.ndim) + value.shape)
    missing = rank
    inner: Any = value
    while isinstance(inner, list):
        missing -= 1
        inner = inner[0] if inner else None
    for _ in range(missing):
        value = [value]
    return value


def _named(given: Sequence[str], datatypes: Mapping[str, str]) -> dict[str, str]:
    """The texts of the inputs by name; ``datatypes`` are those of the model's inputs by name."""
    names = list(datatypes)
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in names:
            if len(names) != 1:
                raise InvalidArgumentError(f"--input {text!r}: expected <name>=<value> with one of the inputs {names}")
            # The path of a file may have the sign too.
            if equals and datatypes[names[0]] != "BYTES" and not os.path.exists(text):
                raise InvalidArgumentError(f"--input {text!r}: there is no input '{name}', expected '{names[0]}'")
            name, value = names[0], text
        if name in found:
            raise InvalidArgumentError(f"--input: the input '{name}' is given twice")
        found[name] = value
    return found


def _is_image(text: str) -> bool:
    return text.lower().endswith(SUFFIXES)


def _value(text: str, name: str, datatype: str, config: Mapping[str, Any], scaling: str) -> Any:
    import numpy as np
    import orjson

    if _is_image(text):
        from naiad.cli.infer_images import image_tensor

        return image_tensor(Path(text), name, config, scaling)

    if text.endswith(NPY):
        with open(text, "rb") as file:
            try:
                # Not np.load, which reads archives too, and raises what each format raises.
                return np.lib.format.read_array(file, allow_pickle=False)
            except ValueError as error:
                raise InvalidArgumentError(f"--input {text}: {error}") from None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if datatype != "BYTES" and not _is_number(text):
            raise InvalidArgumentError(
                f"--input {text!r}: the input '{name}' is {datatype}, expected a number, JSON such as '[[1, 2]]', a "
                f"file of numpy (x.npy) or an image (x.jpg); it is no JSON: {error}"
            ) from None
        value = text
    # A single value stands for a tensor of one.
    return value if isinstance(value, list) else [value]


def _is_number(text: str) -> bool:
    """Whether it is a number that JSON has no form for, such as ``nan``."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _show(found: Any, save: Path | None) -> None:
    import numpy as np

    if save is not None:
        # Objects would be pickled: BYTES become byte strings of one length.
        np.savez(
            save, **{name: array.astype(bytes) if array.dtype == object else array for name, array in found.items()}
        )
        print(f"wrote {', '.join(found)} to {save}")
        return
    for name, array in found.items():
        # A text is more readable than its bytes.
        if array.dtype == object:
            array = np.array([v.decode("utf-8", "backslashreplace") for v in array.flat]).reshape(array.shape)
        print(f"{name} {list(array.shape)}\n{array}")
