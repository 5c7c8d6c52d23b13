"""The histogram of batch sizes, with the reasons for which batches left their queue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from naiad.telemetry.metrics.exposition import label_text, rows_block
from naiad.telemetry.metrics.model_statistics import ModelStatistics

NAME: Final = "naiad_batch_size"
BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_EDGES: Final = (*map(str, BOUNDS), "+Inf")


def batch_blocks(shown: Sequence[tuple[Mapping[str, str], ModelStatistics]]) -> Iterator[str]:
    """The family as text, in parts; nothing before the first batch of a model with dynamic batching."""
    if any(found.left for _, found in shown):
        rows = ("".join(_lines(labels, found.left)) for labels, found in shown)
        yield from rows_block(NAME, "histogram", "Rows of the batches that left the queue, by the reason", rows)


def _lines(labels: Mapping[str, str], left: Mapping[str, Mapping[int, int]]) -> Iterator[str]:
    for reason in sorted(left):
        sizes = left[reason].items()
        text = label_text({**labels, "reason": reason})
        counts = [0] * len(_EDGES)
        for rows, count in sizes:
            counts[bisect_left(BOUNDS, rows)] += count
        total = 0
        for edge, count in zip(_EDGES, counts, strict=True):
            total += count
            yield f'{NAME}_bucket{{{text},le="{edge}"}} {total}\n'
        yield f"{NAME}_sum{{{text}}} {sum(rows * count for rows, count in sizes)}\n"
        yield f"{NAME}_count{{{text}}} {total}\n"
