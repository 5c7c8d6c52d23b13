"""The original's configuration of sequence batching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from naiad.navigator.exceptions import ModelNavigatorWrongParameterError
from naiad.navigator.triton.kinds import check_kind


class SequenceBatcherControlKind(StrEnum):
    """What a control tells the model."""

    CONTROL_SEQUENCE_START = "CONTROL_SEQUENCE_START"
    CONTROL_SEQUENCE_READY = "CONTROL_SEQUENCE_READY"
    CONTROL_SEQUENCE_END = "CONTROL_SEQUENCE_END"
    CONTROL_SEQUENCE_CORRID = "CONTROL_SEQUENCE_CORRID"


FALSE_TRUE: Final = ("int32_false_true", "fp32_false_true", "bool_false_true")
_PAIR: Final = 2


@dataclass
class SequenceBatcherControl:
    """One control: the correlation id has a ``dtype``, each other kind one pair of values for false and true."""

    kind: SequenceBatcherControlKind
    dtype: Any = None
    int32_false_true: Sequence[int] = ()
    fp32_false_true: Sequence[float] = ()
    bool_false_true: Sequence[bool] = ()

    def __post_init__(self) -> None:
        """Check that it has what its kind needs.

        Raises:
            ModelNavigatorWrongParameterError: it has not.
        """
        given = [pair for name in FALSE_TRUE if (pair := getattr(self, name))]
        if self.kind == SequenceBatcherControlKind.CONTROL_SEQUENCE_CORRID:
            fits = self.dtype is not None and not given
        else:
            fits = self.dtype is None and bool(given) and all(len(pair) == _PAIR for pair in given)
        if not fits:
            raise ModelNavigatorWrongParameterError(
                f"{self.kind}: found dtype={self.dtype} and values {given}; CONTROL_SEQUENCE_CORRID needs a dtype "
                "alone, the others a pair of values alone"
            )


@dataclass
class SequenceBatcherControlInput:
    """An input that has controls."""

    input_name: str
    controls: Sequence[SequenceBatcherControl]


@dataclass
class SequenceBatcherInitialState:
    """What a state is at the start of a sequence: zeros, or the content of a file."""

    name: str
    shape: Sequence[int]
    dtype: Any = None
    zero_data: bool | None = None
    data_file: Path | None = None

    def __post_init__(self) -> None:
        """Check that there is one of both.

        Raises:
            ModelNavigatorWrongParameterError: there is none, or two.
        """
        if bool(self.zero_data) == bool(self.data_file):
            raise ModelNavigatorWrongParameterError(
                f"initial state '{self.name}': found zero_data={self.zero_data} and data_file={self.data_file}, "
                "expected one of them"
            )


@dataclass
class SequenceBatcherState:
    """A tensor that the server keeps for a sequence."""

    input_name: str
    output_name: str
    dtype: Any
    shape: Sequence[int]
    initial_states: Sequence[SequenceBatcherInitialState] = ()


@dataclass
class SequenceBatcherStrategyDirect:
    """Each slot has a row."""

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0


@dataclass
class SequenceBatcherStrategyOldest:
    """The oldest requests come first."""

    max_candidate_sequences: int
    preferred_batch_size: Sequence[int] = ()
    max_queue_delay_microseconds: int = 0


@dataclass
class SequenceBatcherConfig:
    """Requests of a sequence run in order on one instance; the original's name for it is ``SequenceBatcher``."""

    strategy: SequenceBatcherStrategyDirect | SequenceBatcherStrategyOldest | None = None
    max_sequence_idle_microseconds: int | None = None
    control_inputs: Sequence[SequenceBatcherControlInput] = ()
    states: Sequence[SequenceBatcherState] = ()

    def __post_init__(self) -> None:
        """Check the strategy; errors as ``check_kind``."""
        if self.strategy is not None:
            check_kind("strategy", self.strategy, SequenceBatcherStrategyDirect, SequenceBatcherStrategyOldest)
