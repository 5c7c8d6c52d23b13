"""Rows of a batch of sequences, described so that a worker process gets the schema of all of them once."""

from __future__ import annotations

from dataclasses import dataclass

from naiad.request import InferRequest, RequestOptions


@dataclass(frozen=True, slots=True)
class StepFacts:
    """The part of a step that a worker gets beside its inputs and its id.

    Attributes:
        kind: its options apart from its sequence and its flags; the same object for all steps of one kind.
        said: its sequence and its flags, as ``STEP`` of ``worker/ipc/frames.py`` packs them.
        controls: the elements of its control tensors one after the other, each padded to ``ALIGNMENT``.
    """

    kind: RequestOptions
    said: bytes
    controls: bytes


class SequenceRow(InferRequest):
    """One row of a batch of sequences.

    Attributes:
        facts: its part of a uniform frame; None for a row that has to be described by itself.
    """

    __slots__ = ("facts",)
    facts: StepFacts | None
