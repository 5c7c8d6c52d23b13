"""The features of the protocol that this version does not support yet, in one table.

A model that asks for any of it is refused when it is loaded: without it the responses would differ from what was asked
for. Settings that only tune GPUs, TensorRT or the first-response histogram (all off) change none and pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from naiad.config.complete import PYTHON_RUNTIME
from naiad.config.problems import Origin
from naiad.errors import ConfigError

ONE_RESPONSE = frozenset(
    {"dyna_sequence", "fil", "identity", "implicit_state", "keras", "onnxruntime", "openvino", "pytorch", "sequence"}
    | {"tensorflow", "tensorrt"}
)
"""The backends of Naiad whose models send one response for each request. Those of other names are Python-based."""
OWN_BACKENDS = ONE_RESPONSE | {"iterative_sequence", "python", "repeat", "square"}
"""All backends of Naiad itself."""


_LIBRARY = re.compile(r"libtriton_(?P<backend>\w+)\.so")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One thing that is refused: ``paths`` gives the places of a configuration that ask for it."""

    feature: str
    advice: str
    paths: Callable[[Any], Iterator[str]]


def backend_of_runtime(config: Any) -> str:
    """The backend of Naiad whose library ``runtime`` names; "" for any other runtime."""
    found = _LIBRARY.fullmatch(config.runtime)
    return found["backend"] if found is not None and found["backend"] in OWN_BACKENDS else ""


def is_runtime_of_torch(config: Any) -> bool:
    """Whether ``runtime`` asks for the reference's PyTorch in Python, in whose place Naiad's own backend serves."""
    return bool(config.backend == "pytorch" and config.runtime == PYTHON_RUNTIME)


def _decoupled(config: Any) -> Iterator[str]:
    if config.model_transaction_policy.decoupled and config.backend in ONE_RESPONSE:
        yield "model_transaction_policy.decoupled"


def _custom_operators(config: Any) -> Iterator[str]:
    if config.model_operations.op_library_filename and config.backend != "onnxruntime":
        yield "model_operations.op_library_filename"


def _runtime(config: Any) -> Iterator[str]:
    # Configurations for the reference may name the library of their own backend.
    if config.runtime not in ("", f"libtriton_{config.backend}.so", PYTHON_RUNTIME):
        yield "runtime"


def _python_runtime(config: Any) -> Iterator[str]:
    if config.runtime == PYTHON_RUNTIME and config.backend in OWN_BACKENDS and not is_runtime_of_torch(config):
        yield "runtime"


def _secondary_devices(config: Any) -> Iterator[str]:
    for index, group in enumerate(config.instance_group):
        # A plan of TensorRT may run on one, beside its GPU.
        if len(group.secondary_devices) > (config.backend == "tensorrt"):
            yield f"instance_group[{index}].secondary_devices"


UNSUPPORTED = (
    Unsupported(
        "any number of responses for a request with a backend that sends one",
        "remove it if the model sends one response for each request",
        _decoupled,
    ),
    Unsupported(
        "custom operator libraries with a backend other than onnxruntime",
        "remove it if the model does not need them",
        _custom_operators,
    ),
    Unsupported("backends from shared libraries", "remove it and set 'backend'", _runtime),
    Unsupported(
        "a Python-based backend in the place of one of Naiad's own",
        "remove it, or give that backend's folder another name",
        _python_runtime,
    ),
    Unsupported(
        "secondary devices other than one of a plan of TensorRT",
        "remove it to run on the first device",
        _secondary_devices,
    ),
)


def unsupported(config: Any, origin: Origin | None = None) -> list[ConfigError]:
    """One problem for each place of ``config`` that uses an unsupported feature."""
    place = origin or Origin()
    return [place.error(_refusal(row, path, config.name), path) for row in UNSUPPORTED for path in row.paths(config)]


def _refusal(row: Unsupported, path: str, model: str) -> str:
    return f"'{path}' of model '{model}' asks for {row.feature}, which this version does not support: {row.advice}"
