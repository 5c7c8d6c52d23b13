"""How the inputs of a batch are gathered and its outputs scattered, where a batch is more than its joined rows.

Source: ``allow_ragged_batch``, ``batch_input`` and ``batch_output`` of the model configuration, and the parameters
``batching.<tensor>``, which are Naiad's own (docs/batching.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from naiad.tensor.dtypes import DataType

if TYPE_CHECKING:
    from fractions import Fraction

PADDED_BATCH_BYTES: Final = 256 << 20
"""What the inputs of a batch may have with their padding, where ``max_batch_bytes`` does not say: one long request
would otherwise make all the others as long."""


@dataclass(frozen=True, slots=True)
class BatchInputSpec:
    """An input of the model that the server makes from a whole batch.

    Attributes:
        kind: of ``BatchInput.Kind``, such as ``BATCH_ELEMENT_COUNT``.
        source: the input whose shapes it tells.
    """

    kind: str
    name: str
    dtype: DataType
    source: str


@dataclass(frozen=True, slots=True)
class PadSpec:
    """An input whose items are made equally large: ``pad(value, to=...)``.

    Attributes:
        dims: the padded dims, counted from 0 behind the batch dimension.
        value: what is added.
        multiple: sizes are rounded up to it.
        buckets: the allowed sizes, ascending; empty for any size.
        mask: the model's input that says which elements are the request's own, "" for none; ``mask_dtype`` is its type.
    """

    dims: tuple[int, ...]
    value: Any
    multiple: int = 1
    buckets: tuple[int, ...] = ()
    mask: str = ""
    mask_dtype: DataType | None = None

    def size(self, longest: int) -> int:
        """The size of a padded dim of a batch whose longest item has ``longest``."""
        for bucket in self.buckets:
            if longest <= bucket:
                return bucket
        # Longer than every bucket too: the item keeps its size, since none of them would hold it.
        return -(-longest // self.multiple) * self.multiple

    def shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The shape that items of these shapes (without the batch dimension) are padded to."""
        first = list(shapes[0])
        for dim in self.dims:
            first[dim] = self.size(max([shape[dim] for shape in shapes]))
        return tuple(first)


@dataclass(frozen=True, slots=True)
class UnpadSpec:
    """An output that is cut to what belongs to each request: ``unpad(INPUT)``.

    Attributes:
        source: the padded input whose sizes count.
        dims: of the output, in the order of the padded dims of the source.
        scale: elements of the output for each of the input, rounded up.
    """

    source: str
    dims: tuple[int, ...]
    scale: Fraction | int = 1

    def sizes(self, own: Sequence[int]) -> list[int]:
        """The sizes of the output that belong to requests whose inputs have these sizes."""
        # In integers: floats would round some sizes up that are exact.
        over, under = self.scale.as_integer_ratio()
        return [-(-size * over // under) for size in own]


@dataclass(frozen=True, slots=True)
class BatchAssembly:
    """The assembly of one model's batches. ``scattered`` maps outputs to the inputs by whose shapes they are split.

    ``is_whole``: batches arrive joined and leave whole, as in a framework worker.
    """

    ragged: frozenset[str] = frozenset()
    made: tuple[BatchInputSpec, ...] = ()
    pads: Mapping[str, PadSpec] = field(default_factory=dict)
    scattered: Mapping[str, str] = field(default_factory=dict)
    unpads: Mapping[str, UnpadSpec] = field(default_factory=dict)
    is_whole: bool = False
