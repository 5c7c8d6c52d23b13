"""Schedulers that wait for a number of requests before they run the first one, for tests that need full queues.

Source: the environment variables of the reference server's own tests. Read when a model is loaded.
"""

from __future__ import annotations

import os
from typing import Final

from naiad.request import InferRequest
from naiad.scheduling.batcher.dynamic import NOTHING, Batcher, Decision
from naiad.scheduling.sequence.slots import Sequence
from naiad.scheduling.sequence.strategies import NOTHING as NO_STEPS
from naiad.scheduling.sequence.strategies import SequenceBatcher, SequenceDecision

DELAY: Final = "TRITONSERVER_DELAY_SCHEDULER"
"""How many requests wait before a dynamic batcher, or the instances of a model with sequences, begin."""
BACKLOG_DELAY: Final = "TRITONSERVER_BACKLOG_DELAY_SCHEDULER"
"""How many requests of sequences without a slot wait before the instances of their model begin."""


def delayed(batcher: Batcher) -> Batcher:
    """``batcher``, behind a ``DelayedBatcher`` when the environment says so."""
    requests = _count(DELAY)
    return DelayedBatcher(batcher, requests) if requests else batcher


def delayed_sequences(batcher: SequenceBatcher) -> SequenceBatcher:
    """``batcher``, behind a ``DelayedSequenceBatcher`` when the environment says so."""
    requests, backlog = _count(DELAY), _count(BACKLOG_DELAY)
    return DelayedSequenceBatcher(batcher, requests, backlog) if requests or backlog else batcher


def _count(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


class DelayedBatcher:
    """Runs nothing until the queue of ``batcher`` has had ``requests`` requests at a time."""

    __slots__ = ("_batcher", "_is_open", "_requests")

    def __init__(self, batcher: Batcher, requests: int) -> None:
        self._batcher = batcher
        self._requests = requests
        self._is_open = False

    @property
    def reason(self) -> str:
        return self._batcher.reason

    def push(self, request: InferRequest) -> None:
        self._batcher.push(request)

    def take(self, now_ns: int) -> Decision:
        return self._batcher.take(now_ns) if self._opens() else NOTHING

    def due(self, now_ns: int) -> tuple[int, int]:
        return self._batcher.due(now_ns) if self._opens() else (0, 0)

    def _opens(self) -> bool:
        # It stays open when the queue gets shorter again.
        self._is_open = self._is_open or len(self._batcher) >= self._requests
        return self._is_open

    def discard(self, request: InferRequest) -> bool:
        return self._batcher.discard(request)

    def drain(self) -> list[InferRequest]:
        return self._batcher.drain()

    def __len__(self) -> int:
        return len(self._batcher)


class DelayedSequenceBatcher:
    """Runs nothing until ``requests`` requests with a slot and ``backlog`` requests without one have waited."""

    __slots__ = ("_backlog", "_batcher", "_is_open", "_requests", "sequences")

    def __init__(self, batcher: SequenceBatcher, requests: int, backlog: int) -> None:
        self.sequences = batcher.sequences
        self._batcher = batcher
        self._requests = requests
        self._backlog = backlog
        self._is_open = False

    def placed(self, sequence: Sequence) -> None:
        self._batcher.placed(sequence)

    def take(self, instance: int, now_ns: int) -> SequenceDecision:
        return self._batcher.take(instance, now_ns) if self._opens() else NO_STEPS

    def due(self, instance: int, now_ns: int) -> tuple[int, int]:
        return self._batcher.due(instance, now_ns) if self._opens() else (0, 0)

    def _opens(self) -> bool:
        if not self._is_open:
            backlog = self.sequences.backlog_requests
            self._is_open = len(self.sequences) - backlog >= self._requests and backlog >= self._backlog
        return self._is_open

    def waits_for_more(self, instance: int, completed: int) -> bool:
        return self._batcher.waits_for_more(instance, completed)

    def drain(self) -> list[InferRequest]:
        return self._batcher.drain()

    def discard(self, sequence: Sequence) -> None:
        self._batcher.discard(sequence)
