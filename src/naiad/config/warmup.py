"""The ``model_warmup`` section, frozen: the samples that every instance runs before it gets requests.

Nothing is checked here. As with the reference server, what is wrong with a sample fails the load of the version.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from naiad.config.messages import enum_name
from naiad.tensor.dtypes import BY_CONFIG

if TYPE_CHECKING:
    from naiad.tensor.dtypes import DataType


class DataSource(Enum):
    """Where the data of an input come from; the value is the field that says so."""

    ZERO = "zero_data"
    RANDOM = "random_data"
    FILE = "input_data_file"


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a sample.

    Attributes:
        dtype: None when the configuration does not say.
        dims: without the batch dimension, as written; the load refuses -1.
        source: None when the configuration does not say.
        file: for ``DataSource.FILE`` its path in the model's folder ``warmup``.
        is_control: it is a control of sequences, and no input of the configuration.
    """

    name: str
    dtype: DataType | None
    dims: tuple[int, ...]
    source: DataSource | None
    file: str = ""
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class WarmupSample:
    """``batch_size`` requests of one row that run together, ``count`` times."""

    name: str
    batch_size: int
    count: int
    inputs: tuple[WarmupInput, ...]


def warmup_samples(config: Any) -> tuple[WarmupSample, ...]:
    """The samples of ``config``, a ``ModelConfig``; a batch size of 0 leaves a sample out."""
    controls = frozenset(control.name for control in config.sequence_batching.control_input)
    return tuple(_sample(sample, controls) for sample in config.model_warmup if sample.batch_size)


def _sample(sample: Any, controls: frozenset[str]) -> WarmupSample:
    inputs = tuple(_input(name, sample.inputs[name], name in controls) for name in sorted(sample.inputs))
    return WarmupSample(sample.name, sample.batch_size, max(1, sample.count), inputs)


def _input(name: str, found: Any, is_control: bool) -> WarmupInput:
    chosen = found.WhichOneof("input_data_type")
    return WarmupInput(
        name,
        BY_CONFIG.get(enum_name(found, "data_type")),
        tuple(found.dims),
        DataSource(chosen) if chosen else None,
        found.input_data_file,
        is_control,
    )
