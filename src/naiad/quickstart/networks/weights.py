"""Random weights that take little space: all kernels of a network are cut from one table of random numbers.

A file holds the table once, and the graph cuts, shapes and scales each kernel when it is loaded. Every layer keeps its
real shape, so that the network takes the time and the memory of the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

TABLE_SIZE: Final = 1 << 19
"""Numbers in the table: 2 MiB."""

REPEATS: Final = 5
"""How often the table is repeated when a network is loaded: the largest kernels have more numbers than the table."""

_BIAS_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True)
class Kernel:
    """Where the numbers of a kernel lie in the repeated table, and what they are multiplied by."""

    shape: tuple[int, ...]
    offset: int
    scale: float

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


class WeightSource:
    """Gives the weights of a network's layers, the same ones for the same seed.

    Args:
        seed: of the random numbers.

    Attributes:
        table: FP32 [TABLE_SIZE], normally distributed.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.table: NDArray[Any] = self._random.standard_normal(TABLE_SIZE, np.float32)

    def kernel(self, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> Kernel:
        """A kernel whose numbers are scaled so that values keep their size from layer to layer.

        Args:
            shape: of the kernel.
            fan_in: how many inputs each output of the layer adds up.
            gain: 2 before a ReLU, which drops half of the values, else 1.
        """
        room = TABLE_SIZE * REPEATS - prod(shape)
        return Kernel(tuple(shape), int(self._random.integers(0, room + 1)), sqrt(gain / fan_in))

    def bias(self, size: int) -> NDArray[Any]:
        """A bias: FP32 [size]."""
        return (self._random.standard_normal(size) * _BIAS_SPREAD).astype(np.float32)
