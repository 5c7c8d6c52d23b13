"""The inputs and outputs in regions that equal requests have in common. The regions themselves are looked up for every
request: a name may stand for another region by then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import DataType


class RegionInput(NamedTuple):
    """An input in a region. Its size fits its shape; that of BYTES is checked when they are read."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    elements: int
    ref: RegionRef


@dataclass(frozen=True, slots=True)
class RegionOptions:
    """The inputs in regions, and by name the regions for outputs."""

    inputs: tuple[RegionInput, ...]
    outputs: tuple[tuple[str, RegionRef], ...]
