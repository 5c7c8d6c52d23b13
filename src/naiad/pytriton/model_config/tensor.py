"""``Tensor``: an input or an output of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    Attributes:
        shape: without the batch dimension, -1 for any size.
        dtype: of numpy; ``bytes``, ``np.bytes_`` and ``object`` are BYTES.
        name: None for ``INPUT_1``, ``OUTPUT_1`` and so on.
        optional: whether a request may lack it, for inputs.
    """

    shape: tuple[int, ...]
    dtype: Any
    name: str | None = None
    optional: bool | None = False

    def __post_init__(self) -> None:
        """Take the type of a ``np.dtype``."""
        if isinstance(self.dtype, np.dtype):
            object.__setattr__(self, "dtype", self.dtype.type)
