"""What an inference function returned, checked and as arrays of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from naiad.pytriton.model_config.datatypes import BYTES_TYPES, config_type
from naiad.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from naiad.pytriton.proxy.types import Response
from naiad.request import Outputs

Array = np.ndarray[Any, Any]
_KINDS: Final = "biufOSU"


class ResultReader:
    """Checks the results of one model.

    Args:
        config: of the model.
        strict: whether names, datatypes and shapes have to be those of the configuration. Otherwise numbers are cast to
            the configured datatype, and outputs are sent as they were returned apart from that.
    """

    def __init__(self, config: TritonModelConfig, strict: bool) -> None:
        self._model = config.model_name
        self._specs = {spec.name: spec for spec in config.outputs or ()}
        self._batches = config.batching
        self._decoupled = config.decoupled
        self._strict = strict

    def read(self, results: Any, requests: Sequence[Mapping[str, Array]], wanted: Sequence[Sequence[str]]) -> Any:
        """The outputs for each request.

        Args:
            results: what the function returned, or yielded.
            requests: the inputs of each request.
            wanted: the outputs that each request wants.

        Raises:
            ValueError: the function returned something else than it should; the text says what.
        """
        if not isinstance(results, list):
            raise self._wrong(
                f"must be list of response dicts with numpy arrays. Got outputs={_short(results)} instead"
            )
        if len(results) != len(requests):
            raise ValueError(
                f"Number of outputs returned by `{self._model}` inference callable ({len(results)}) does not match "
                f"number of requests ({len(requests)}) received from Triton."
            )
        return [
            self._response(result, inputs, names)
            for result, inputs, names in zip(results, requests, wanted, strict=True)
        ]

    def _response(self, result: Any, inputs: Mapping[str, Array], wanted: Sequence[str]) -> Mapping[str, Array]:
        if not isinstance(result, dict | Response):
            raise self._wrong(
                f"must be list of response dicts with numpy arrays. Got response={_short(result)} instead"
            )
        # A request without inputs does not say how many rows it has.
        rows = len(next(iter(inputs.values()))) if inputs and self._batches and not self._decoupled else None
        made, is_plain = {}, True
        for name, value in result.items():
            array = self._array(name, value, rows)
            if not self._strict:
                array = self._cast(name, array)
            problem = self._problem(name, array)
            if problem and self._strict:
                raise ValueError(problem)
            is_plain = is_plain and not problem
            made[name] = array
        if missing := [name for name in wanted if name not in made]:
            if self._strict or not made:
                raise self._wrong(f"lack {missing}, which the caller wants. Got {sorted(made)} instead")
            is_plain = False
        return made if is_plain else Outputs(made)

    def _array(self, name: Any, value: Any, rows: int | None) -> Array:
        if not isinstance(name, str):
            raise ValueError(f"Not all keys returned by `{self._model}` model callable are string")
        if not isinstance(value, np.ndarray):
            raise ValueError(f"Not all values returned by `{self._model}` model callable are numpy arrays")
        if value.dtype.kind not in _KINDS:
            raise ValueError(
                f"Only bool, numeric, string, unicode and object arrays are supported by Triton (dtype.kind: "
                f"{_KINDS}). Returned `{name}` for model `{self._model}` has `{value.dtype.kind}` dtype.kind."
            )
        if rows is not None and value.shape[:1] != (rows,):
            raise ValueError(
                f"Returned output `{name}` for model `{self._model}` has the shape {value.shape}, expected "
                f"{rows} rows: as many as the inputs of the request"
            )
        return self._strings(name, value) if value.dtype.kind in "OSU" else value

    def _strings(self, name: str, value: Array) -> Array:
        flat = value.reshape(-1).tolist()
        if value.dtype.kind == "O":
            if wrong := next((v for v in flat if not isinstance(v, bytes)), None):
                raise ValueError(
                    f"Only bytes as objects dtype are supported by PyTriton. Returned `{name}` from `{self._model}` "
                    f"has `{type(wrong)}` type: use np.char.encode(array, 'utf-8') for strings."
                )
            return value
        made = np.empty(value.shape, object)
        made.reshape(-1)[:] = [v.encode() if isinstance(v, str) else v for v in flat]
        return made

    def _cast(self, name: str, value: Array) -> Array:
        """Numbers as the configuration has them, which is what callers read them as."""
        spec = self._specs.get(name)
        if spec is None or value.dtype.kind == "O" or _is_bytes(spec):
            return value
        return value.astype(spec.dtype, copy=False)

    def _problem(self, name: str, value: Array) -> str:
        """How an output differs from the configuration; "" for not at all."""
        spec = self._specs.get(name)
        if spec is None:
            return f"Returned output `{name}` is not defined in model config for model `{self._model}`."
        if not _has_type(value, spec):
            return (
                f"Returned output `{name}` for model `{self._model}` has invalid type. "
                f"Returned: {value.dtype} ({value.dtype.kind}). Expected: {spec.dtype}."
            )
        shape = value.shape[1:] if self._batches else value.shape
        if len(shape) != len(spec.shape):
            where = "has invalid shapes."
        elif any(size != wanted and wanted != -1 for size, wanted in zip(shape, spec.shape, strict=True)):
            where = "has invalid shapes at one or more positions."
        else:
            return ""
        text = f"Returned output `{name}` for model `{self._model}` {where} "
        return text + f"Returned: {shape}. Expected: {tuple(spec.shape)}."

    def _wrong(self, text: str) -> ValueError:
        return ValueError(f"Outputs returned by `{self._model}` model callable {text}.")


def _has_type(value: Array, spec: TensorSpec) -> bool:
    has_bytes: bool = value.dtype.kind == "O"
    if has_bytes or _is_bytes(spec):
        return has_bytes and _is_bytes(spec)
    return config_type(value.dtype.type) == config_type(spec.dtype)


def _is_bytes(spec: TensorSpec) -> bool:
    return any(spec.dtype is known for known in BYTES_TYPES)


def _short(value: Any) -> str:
    return repr(value)[:200]
