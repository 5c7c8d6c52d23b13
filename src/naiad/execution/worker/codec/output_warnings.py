"""Warnings of responses of a Python model that differ from its configuration.

Callers get them unchanged, as they do from the reference, so only the log shows the difference to the model's author.
"""

from __future__ import annotations

import logging

from naiad.config.spec import ModelSpec, TensorSpec
from naiad.tensor.dtypes import DataType

logger = logging.getLogger(__name__)

_MOST = 64


class OutputWarnings:
    """Logs one warning for each output. Called once for each schema of responses."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._said: set[str] = set()

    def look_at(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> None:
        """Compare an output with the configuration; ``shape`` is the model's own."""
        if name in self._said or len(self._said) >= _MOST:
            return
        if text := self._text(name, dtype, shape):
            self._said.add(name)
            logger.warning("model '%s' returned output '%s'%s", self._spec.name, name, text)

    def _text(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> str:
        tensor = self._spec.outputs.get(name)
        if tensor is None:
            return ""
        if dtype is not tensor.dtype:
            return f" as {dtype.wire}, but its configuration says {tensor.dtype.wire}: callers get {dtype.wire}"
        expected = self._expected(tensor)
        if len(shape) == len(expected) and all(e in (-1, s) for e, s in zip(expected, shape, strict=True)):
            return ""
        return f" with shape {list(shape)}, but its configuration says {list(expected)}: callers get it as it is"

    def _expected(self, tensor: TensorSpec) -> tuple[int, ...]:
        if tensor.reshape is None:
            return tensor.shape
        return (-1, *tensor.reshape) if self._spec.max_batch_size else tensor.reshape
