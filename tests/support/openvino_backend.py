"""What the tests of the openvino backend do with a model file: complete, load, run, and read errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backend_api.backend import Instance
from naiad.backends import registry
from naiad.errors import NaiadError
from support.backend_contract import config, context, running, spec, started

NAME = "openvino"


def parameters(**values: str) -> str:
    """The text of ``parameters`` of a configuration."""
    return " ".join(f'parameters {{ key: "{k}" value {{ string_value: "{v}" }} }}' for k, v in values.items())


def tensors(x: str, y: str, batch: int = 0, kind: str = "TYPE_FP32") -> str:
    """A configuration with the input X and the output Y of these dims."""
    return (
        f'backend: "openvino" max_batch_size: {batch} '
        f'input {{ name: "X" data_type: {kind} dims: [ {x} ] }} output {{ name: "Y" data_type: {kind} dims: [ {y} ] }} '
    )


def completed(path: Path, text: str = "", **settings: str) -> Any:
    """The configuration that the backend fills in."""
    message = config('backend: "openvino" ' + text)
    backend = registry.create(NAME, context(path, **settings))
    backend.complete(message)
    backend.close()
    return message


def described(entries: Any) -> list[tuple[str, str, list[int]]]:
    """Names, types and dims of inputs or outputs."""
    enum = entries[0].DESCRIPTOR.fields_by_name["data_type"].enum_type
    return [(t.name, enum.values_by_number[t.data_type].name, list(t.dims)) for t in entries]


@contextmanager
def loaded(path: Path, text: str, cores: int = 1, **settings: str) -> Iterator[Instance]:
    """One instance of a model."""
    with running(NAME, context(path, cores, **settings), spec(text)) as instance:
        yield instance


def answer(instance: Instance, x: np.ndarray) -> np.ndarray:
    """Y for X."""
    return instance.execute({"X": x}, ("Y",))["Y"]


def refusal(path: Path, text: str, **settings: str) -> str:
    """Why a model with a full configuration does not load."""
    with pytest.raises(NaiadError) as caught, started(NAME, context(path, **settings), spec(text)):
        pass
    return str(caught.value)


def reading_error(path: Path, text: str = "", **settings: str) -> str:
    """Why a configuration cannot be completed."""
    with pytest.raises(NaiadError) as caught:
        completed(path, text, **settings)
    return str(caught.value)


def properties(path: Path, text: str, cores: int, *names: str) -> dict[str, str]:
    """What OpenVINO says of the compiled model behind an instance."""
    with loaded(path, text, cores) as instance:
        compiled = instance._request.get_compiled_model()  # type: ignore[attr-defined]
        return {name: str(compiled.get_property(name)) for name in names}
