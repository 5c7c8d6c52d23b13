"""Labels of ensemble outputs without a label file: those of the member that writes the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from naiad.config.ensemble import EnsembleSpec
from naiad.config.spec import ModelSpec


class MemberLabels(Sequence[bytes]):
    """The labels of the member that writes an output now.

    An object of its own, since cached plans refer to it: a member may be loaded again with other labels.
    """

    __slots__ = ("current",)

    def __init__(self) -> None:
        self.current: Sequence[bytes] = ()

    def __len__(self) -> int:
        return len(self.current)

    def __getitem__(self, index: Any) -> Any:
        return self.current[index]


def with_member_labels(spec: ModelSpec) -> ModelSpec:
    """A copy of ``spec`` with ``MemberLabels`` for outputs without a label file."""
    outputs = {n: t if t.label_filename else replace(t, labels=MemberLabels()) for n, t in spec.outputs.items()}
    return replace(spec, outputs=outputs)


def follow(spec: ModelSpec, ensemble: EnsembleSpec, members: Sequence[ModelSpec]) -> None:
    """Give the outputs of ``spec`` the labels of ``members``, the models of the steps in their order.

    When two steps may write an output, the labels of the first step that has any are used.
    """
    found: dict[str, Sequence[bytes]] = {}
    for step, member in zip(ensemble.steps, members, strict=True):
        for name, tensor in step.outputs:
            if not found.get(tensor):
                found[tensor] = member.outputs[name].labels
    for output in spec.outputs.values():
        if isinstance(output.labels, MemberLabels):
            output.labels.current = found.get(output.name, ())
