"""The families of the GPUs. Names and units are the reference's: watts, joules, shares and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from naiad.telemetry.metrics.exposition import braced, label_text, number_text


@dataclass(frozen=True, slots=True)
class GpuFamily:
    """One family: its values by ``gpu_uuid``, without the GPUs that do not report it."""

    name: str
    kind: str
    help: str
    values: Sequence[tuple[str, float]]


def blocks(families: Iterable[GpuFamily]) -> Iterator[str]:
    """The families that have values, in the text exposition format."""
    for family in families:
        lines = "".join(
            f"{family.name}{braced(label_text({'gpu_uuid': uuid}))} {number_text(value)}\n"
            for uuid, value in family.values
        )
        if lines:
            yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n{lines}"
