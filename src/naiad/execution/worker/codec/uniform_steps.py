"""Batches of steps of any sequences as ``EXECUTE_STEPS`` frames: described once, where they are of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from naiad.config.spec import ModelSpec
from naiad.execution.batching.step_row import SequenceRow
from naiad.execution.worker.codec.uniform import joined, said_ids, uniform_schema
from naiad.execution.worker.codec.writer import BatchWriter, Piece
from naiad.request import InferRequest, RequestOptions
from naiad.worker.ipc.frames import ALIGNMENT, EXECUTE_STEPS, FRAME, STEP, UNIFORM
from naiad.worker.ipc.schemas import PADDING, aligned


class UniformSequenceSchema:
    """A form whose steps can travel like this.

    Args:
        number: of the form.
        tensors: of each input that is no control, its name and its size in bytes; those before the controls and those
            behind them.
        controls: bytes of the controls together.
    """

    __slots__ = ("_after", "_before", "_number", "_stride")

    def __init__(
        self, number: int, before: Sequence[tuple[str, int]], controls: int, after: Sequence[tuple[str, int]]
    ) -> None:
        self._number = number
        self._before, self._after = (
            [(name, PADDING[-size % ALIGNMENT]) for name, size in tensors] for tensors in (before, after)
        )
        self._stride = controls + sum(aligned(size) for _, size in (*before, *after))

    def frame(self, batch: int, first: int, rows: Sequence[SequenceRow]) -> bytes | None:
        """The frame of a batch whose requests are numbered from ``first`` on; None as ``AlikeForm.frame``."""
        count = len(rows)
        said = said_ids(rows)
        if said is None:
            return None
        head_bytes = UNIFORM.size + count * STEP.size + len(said)
        begin = aligned(head_bytes)
        data_bytes = count * self._stride
        pieces: list[Any] = [
            FRAME.pack(EXECUTE_STEPS, begin + data_bytes, batch),
            UNIFORM.pack(first, count, self._number, len(said), 0),
            *[row.facts.said for row in rows if row.facts is not None],
            said,
            PADDING[begin - head_bytes],
        ]
        for row in rows:
            inputs = row.inputs
            for name, gap in self._before:
                pieces += (inputs[name], gap)
            if row.facts is not None:
                pieces.append(row.facts.controls)
            for name, gap in self._after:
                pieces += (inputs[name], gap)
        return joined(pieces, FRAME.size + begin + data_bytes)


class SequenceBatchWriter(BatchWriter):
    """Writes the batches of a model with sequences for one child."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        controls = () if spec.sequence is None else spec.sequence.controls
        self._controls = frozenset(control.tensor.name for control in controls)
        self._steps: dict[RequestOptions, UniformSequenceSchema | None] = {}

    def _write_uniform(
        self, number: int, first: int, requests: Sequence[InferRequest], pieces: list[Piece]
    ) -> bytes | None:
        rows: list[SequenceRow] = []
        kind = None
        for request in requests:
            # A warm-up has requests that are no steps.
            facts = request.facts if isinstance(request, SequenceRow) else None
            if facts is None or (kind is not None and facts.kind is not kind):
                return super()._write_uniform(number, first, requests, pieces)
            kind = facts.kind
            rows.append(request)  # type: ignore[arg-type]
        if kind is None:
            return None
        if kind not in self._steps:
            self._steps[kind] = self._step_form(kind, rows[0], pieces)
        form = self._steps[kind]
        return form.frame(number, first, rows) if form is not None else None

    def make_room(self, pieces: list[Piece]) -> None:
        """As ``BatchWriter.make_room``."""
        before = len(pieces)
        super().make_room(pieces)
        if len(pieces) > before:
            self._steps.clear()

    def _step_form(self, kind: RequestOptions, row: SequenceRow, pieces: list[Piece]) -> UniformSequenceSchema | None:
        like = InferRequest(kind, row.inputs)
        number = self._form_of(like, pieces)
        if row.facts is None or uniform_schema(number, self._spec, like) is None:
            return None
        sizes = [(name, array.nbytes) for name, array in row.inputs.items()]
        places = [index for index, (name, _) in enumerate(sizes) if name in self._controls]
        begin, end = (places[0], places[-1] + 1) if places else (len(sizes), len(sizes))
        if end - begin != len(places):
            return None
        return UniformSequenceSchema(number, sizes[:begin], len(row.facts.controls), sizes[end:])


def writer_for(spec: ModelSpec) -> BatchWriter:
    """What writes the batches of a model for one of its processes."""
    return BatchWriter(spec) if spec.sequence is None else SequenceBatchWriter(spec)
