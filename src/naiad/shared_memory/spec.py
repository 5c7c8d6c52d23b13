"""What requests alike have in common that use regions. The regions themselves are looked up for every request: a name
may stand for another region by then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import DataType


class RegionInput(NamedTuple):
    """An input that lies in a region; its size was found to fit its shape, but for BYTES."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    elements: int
    ref: RegionRef


@dataclass(frozen=True, slots=True)
class RegionOptions:
    """The inputs that lie in regions, and by name where outputs are wanted."""

    inputs: tuple[RegionInput, ...]
    outputs: tuple[tuple[str, RegionRef], ...]
