"""Models with sequences, and callers that belong to one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from naiad.backend_api.backend import Arrays
from naiad.config.spec import ControlSpec, ModelSpec, SequenceSpec
from naiad.execution.sequence.model import SequenceModel
from naiad.request import SEQUENCE_END, SEQUENCE_START, Recipient, RequestOptions
from support.event_loops import WAIT_S
from support.loaded_models import Execute, FunctionBackend, spec, tensor
from support.noted_requests import NotedRequest

MS = 1_000_000
CONTROLS = (
    ControlSpec("START", tensor("START", "INT32"), (0, 1)),
    ControlSpec("END", tensor("END", "INT32"), (0, 1)),
    ControlSpec("READY", tensor("READY", "INT32"), (0, 1)),
    ControlSpec("CORRID", tensor("CORRID", "UINT64")),
)


def sequences(
    *,
    oldest: bool = False,
    slots: int = 4,
    idle_ms: int = 10_000,
    controls: Sequence[ControlSpec] = CONTROLS,
    **more: Any,
) -> SequenceSpec:
    """A section with controls of every kind."""
    preferred = (slots,) if oldest else ()
    return SequenceSpec(oldest, slots, idle_ms * MS, preferred_batch_sizes=preferred, controls=tuple(controls), **more)


def model_spec(section: SequenceSpec, max_batch_size: int = 4, count: int = 1, **more: Any) -> ModelSpec:
    """A model from one float to one float with that section."""
    batched = max_batch_size > 0
    inputs, outputs = (tensor("x", batched=batched),), (tensor("y", batched=batched),)
    return replace(spec(inputs, outputs, max_batch_size=max_batch_size, count=count), sequence=section, **more)


class Totals:
    """Adds up the inputs of each sequence, by the number in CORRID; keeps what it was given."""

    def __init__(self) -> None:
        self.totals: dict[int, float] = {}
        self.batches: list[dict[str, np.ndarray]] = []

    def __call__(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        self.batches.append({name: np.array(array) for name, array in inputs.items()})
        found = np.zeros_like(inputs["x"])
        for row in range(len(found)):
            if inputs["READY"].ravel()[row]:
                key = int(inputs["CORRID"].ravel()[row])
                before = 0.0 if inputs["START"].ravel()[row] else self.totals[key]
                self.totals[key] = before + float(inputs["x"].ravel()[row])
                found.ravel()[row] = self.totals[key]
        return {"y": found}


class Caller(NotedRequest):
    """One request of a sequence."""

    __slots__ = ("recipient",)

    def __init__(
        self,
        sequence: int | str,
        value: float,
        start: bool = False,
        end: bool = False,
        timeout_us: int = 0,
        rows: int = 1,
        batched: bool = True,
    ) -> None:
        flags = SEQUENCE_START * start | SEQUENCE_END * end
        options = RequestOptions(
            ("y",), rows, (("x", (1,)),), flags=flags, correlation_id=sequence, timeout_us=timeout_us
        )
        given = np.full((rows, 1) if batched else (1,), value, np.float32)
        super().__init__(options, {"x": given})
        self.recipient: Recipient | None = None

    def retarget(self, recipient: Recipient) -> None:
        self.recipient = recipient

    async def answer(self) -> float:
        """The value of the output; raises the error that came instead."""
        return float((await self.outputs())["y"].ravel()[0])


@contextlib.contextmanager
def loaded(found: ModelSpec, execute: Execute | FunctionBackend) -> Iterator[SequenceModel]:
    """A started model on the running loop; at its end no slot is taken but by sequences that are idle."""
    backend = execute if isinstance(execute, FunctionBackend) else FunctionBackend(lambda index: execute)
    model = SequenceModel(found, 1, backend, asyncio.get_running_loop())
    model.start()
    try:
        yield model
    finally:
        assert model.close(WAIT_S)
        model.detach()


def standing(model: SequenceModel) -> int:
    """How many sequences stand in slots."""
    section = model.spec.sequence
    assert section is not None
    found = model._sequences.sequences
    rows = [found.row(number) for number in range(model.spec.instance_count)]
    free = len(found._free) + sum(map(len, found._suspended.values()))
    taken = sum(s is not None for row in rows for s in row)
    assert taken + free == section.slots * model.spec.instance_count, "a slot is free or taken, and only once"
    return taken
