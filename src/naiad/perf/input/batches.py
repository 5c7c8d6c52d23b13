"""Steps of one row become requests of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from naiad.perf.input.element_bytes import shape_text
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.memory_limit import check_room
from naiad.perf.steps import ModelDescription, Step, StepStream, TensorValue


def batched(rows: Sequence[Step], batch_size: int, model: ModelDescription, stream: int = 0) -> StepStream:
    """The requests of a stream; each holds ``batch_size`` rows that follow one another, around the stream's end.

    The next request begins behind the last row of the one before.

    Args:
        rows: steps whose tensors have no batch dimension.
        stream: named in errors.

    Raises:
        PerfInputError: the rows of a batch have different inputs or shapes.
    """
    if not model.max_batch_size:
        return StepStream(tuple(rows))
    count = len(rows)
    requests = count // math.gcd(count, batch_size) if count else 0
    size = sum(len(value.data) for row in rows for value in (*row.inputs, *row.expected))
    check_room(
        size * requests * batch_size // max(count, 1),
        f"the batches of {batch_size} of {count} steps have",
        "give fewer steps, or a number of them that is a multiple of -b",
    )
    shape_tensors = {tensor.name for tensor in model.inputs if tensor.is_shape_tensor}
    steps = []
    for begin in (i * batch_size % count for i in range(requests)):
        members = [rows[(begin + i) % count] for i in range(batch_size)]
        steps.append(_request(members, shape_tensors, f"( Location stream id: {stream}, step id: {begin})"))
    return StepStream(tuple(steps))


def _request(members: Sequence[Step], shape_tensors: set[str], place: str) -> Step:
    first = members[0]
    return Step(
        _stacked([step.inputs for step in members], shape_tensors, "input", place),
        _stacked([step.expected for step in members], set(), "output", place),
        first.timestamp_ms,
        first.payload,
        first.session_id,
        first.delay_ms,
    )


def _stacked(
    members: Sequence[tuple[TensorValue, ...]], shape_tensors: set[str], kind: str, place: str
) -> tuple[TensorValue, ...]:
    """The tensors of several rows as those of one request."""
    names = [tensor.name for tensor in members[0]]
    if any([tensor.name for tensor in other] != names for other in members[1:]):
        raise PerfInputError(
            f"For batch sizes larger than 1, the same set of {kind}s must be specified for each batch. You cannot use "
            f"different set of optional {kind}s for each individual batch {place}"
        )
    return tuple(
        _one_shape(column, place) if column[0].name in shape_tensors else _column(column, kind, place)
        for column in zip(*members, strict=True)
    )


def _column(rows: Sequence[TensorValue], kind: str, place: str) -> TensorValue:
    first = rows[0]
    for other in rows:
        if other.shape != first.shape:
            raise PerfInputError(
                f"can not batch tensors with different shapes together ({kind} '{first.name}' expected shape "
                f"{shape_text(first.shape)} and received {shape_text(other.shape)}) {place}"
            )
    shape = (len(rows), *first.shape)
    return TensorValue(first.name, first.datatype, shape, b"".join([row.data for row in rows]))


def _one_shape(rows: Sequence[TensorValue], place: str) -> TensorValue:
    """A shape tensor, which a batch has once."""
    first = rows[0]
    for other in rows:
        if other.data != first.data:
            raise PerfInputError(
                f"The shape tensors should be identical in a batch (mismatch in content of '{first.name}') {place}"
            )
    return first
