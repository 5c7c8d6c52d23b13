"""Delayed schedulers, which wait for a number of requests before they run the first one, for tests of full queues.

Source: the environment variables of the reference server's own tests. Read when a model is loaded.
"""

from __future__ import annotations

import os
from typing import Final

from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import DynamicBatcher
from naiad.scheduling.batcher.limited import LimitedBatcher
from naiad.scheduling.sequence.slots import Sequence
from naiad.scheduling.sequence.strategies import NOTHING, SequenceBatcher, SequenceDecision

DELAY: Final = "TRITONSERVER_DELAY_SCHEDULER"
"""How many requests wait before a dynamic batcher, or the instances of a model with sequences, begin."""
BACKLOG_DELAY: Final = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"
"""How many requests of sequences without a slot wait before the instances of their model begin."""


def _count(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def dynamic_batcher_kind() -> type[DynamicBatcher]:
    """The class of dynamic batchers."""
    return DelayedDynamicBatcher if _count(DELAY) else DynamicBatcher


def limited_batcher_kind() -> type[LimitedBatcher]:
    """The class of dynamic batchers whose batches have further limits."""
    return DelayedLimitedBatcher if _count(DELAY) else LimitedBatcher


def delayed(batcher: SequenceBatcher) -> SequenceBatcher:
    """``batcher``, delayed if the environment says so."""
    requests, backlog = _count(DELAY), _count(BACKLOG_DELAY)
    return DelayedSequenceBatcher(batcher, requests, backlog) if requests or backlog else batcher


class DelayedDynamicBatcher(DynamicBatcher):
    """Runs nothing until its queue has reached the configured length."""

    _is_open = False

    def due(self, now_ns: int) -> tuple[int, int]:
        if not self._is_open:
            if len(self) < _count(DELAY):
                return 0, 0
            self._is_open = True
        return super().due(now_ns)


class DelayedLimitedBatcher(DelayedDynamicBatcher, LimitedBatcher):
    """A delayed batcher whose batches have further limits."""


class DelayedSequenceBatcher:
    """Lets the instances run nothing until enough requests with a slot, and enough without one, have waited."""

    def __init__(self, batcher: SequenceBatcher, requests: int, backlog: int) -> None:
        self.sequences = batcher.sequences
        self._batcher = batcher
        self._requests = requests
        self._backlog = backlog
        self._is_open = False

    def placed(self, sequence: Sequence) -> None:
        self._batcher.placed(sequence)

    def take(self, instance: int, now_ns: int) -> SequenceDecision:
        return self._batcher.take(instance, now_ns) if self._opens() else NOTHING

    def due(self, instance: int, now_ns: int) -> tuple[int, int]:
        return self._batcher.due(instance, now_ns) if self._opens() else (0, 0)

    def _opens(self) -> bool:
        if not self._is_open:
            backlog = self.sequences.backlog_requests
            self._is_open = len(self.sequences) - backlog >= self._requests and backlog >= self._backlog
        return self._is_open

    def waits_for_more(self, instance: int, answered: int) -> bool:
        return self._batcher.waits_for_more(instance, answered)

    def drain(self) -> list[InferRequest]:
        return self._batcher.drain()

    def discard(self, sequence: Sequence) -> None:
        self._batcher.discard(sequence)
