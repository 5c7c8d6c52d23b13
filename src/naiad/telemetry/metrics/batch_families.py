"""The histogram of batch sizes, with the reasons for which batches left their queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from naiad.telemetry.metrics.exposition import braced, label_text
from naiad.telemetry.metrics.model_statistics import ModelStatistics

NAME: Final = "naiad_batch_size"
BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def batch_blocks(shown: Sequence[tuple[Mapping[str, str], ModelStatistics]]) -> Iterator[str]:
    """The family as text; nothing before the first batch of a model with dynamic batching."""
    lines = [line for labels, found in shown for line in _lines(labels, found.left)]
    if lines:
        yield f"# HELP {NAME} Rows of the batches that left the queue, by the reason\n# TYPE {NAME} histogram\n"
        yield "".join(lines)


def _lines(labels: Mapping[str, str], left: Mapping[str, Mapping[int, int]]) -> Iterator[str]:
    for reason in sorted(left):
        sizes = left[reason].items()
        text = label_text({**labels, "reason": reason})
        total = sum(count for _, count in sizes)
        for bound in BOUNDS:
            below = sum(count for rows, count in sizes if rows <= bound)
            edge = f'le="{bound}"'
            yield f"{NAME}_bucket{braced(text, edge)} {below}\n"
        edge = 'le="+Inf"'
        yield f"{NAME}_bucket{braced(text, edge)} {total}\n"
        yield f"{NAME}_sum{braced(text)} {sum(rows * count for rows, count in sizes)}\n"
        yield f"{NAME}_count{braced(text)} {total}\n"
