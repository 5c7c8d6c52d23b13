"""Which batches of an instance take less time than the way into its thread and back.

That way costs some 100 us of processor time: the loop wakes the thread, both want the interpreter lock, and the thread
wakes the loop. Batches that run in less than that are better run by the loop itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np

LIMIT_NS: Final = 100_000
"""The longest run that the event loop makes itself."""
REST_RUNS: Final = 1000
"""After runs on the loop have become longer, so many runs are made in the thread before one is tried again."""
_OUTLIER: Final = 4
_WEIGHT: Final = 16


class ShortRuns:
    """Learns how long runs take from those that were made, by the size of their inputs: for models whose runs depend on
    shapes alone. Used by one thread at a time.
    """

    __slots__ = ("_expected", "_rest")

    def __init__(self) -> None:
        # The nanoseconds of a run by the number of bits of its size in bytes.
        self._expected: dict[int, int] = {}
        # The runs that are still to be made in the thread.
        self._rest: dict[int, int] = {}

    def expects(self, size: int) -> bool:
        """Whether a batch of ``size`` bytes is expected to run within the limit."""
        kind = size.bit_length()
        expected = self._expected.get(kind)
        return (self._unseen(kind) if expected is None else expected) <= LIMIT_NS

    def _unseen(self, kind: int) -> int:
        """The time expected of a size that was not seen: that of a larger one, or in proportion to a smaller one."""
        found = self._expected
        smaller = max((k for k in found if k < kind), default=None)
        larger = min((k for k in found if k > kind), default=None)
        if larger is not None and (smaller is None or found[larger] <= LIMIT_NS):
            return found[larger]
        return LIMIT_NS + 1 if smaller is None else found[smaller] << (kind - smaller)

    def ran_here(self, size: int, ns: int) -> None:
        """A batch has run on the loop in ``ns`` nanoseconds."""
        kind = size.bit_length()
        expected = self._expected.get(kind)
        if expected is not None and ns > expected:
            # The processor may have been elsewhere: one long run says little, many say all.
            ns = expected + (min(ns, _OUTLIER * expected) - expected) // _WEIGHT
        self._expected[kind] = ns
        if ns > LIMIT_NS:
            self._rest[kind] = REST_RUNS

    def ran_in_thread(self, size: int, ns: int) -> None:
        """A batch has run in the thread, and has taken ``ns`` nanoseconds of processor time there."""
        kind = size.bit_length()
        rest = self._rest.get(kind)
        if rest is None:
            self._expected[kind] = min(ns, self._expected.get(kind, ns))
        elif rest:
            self._rest[kind] = rest - 1
        else:
            del self._rest[kind]
            self._expected[kind] = ns


def size_of(inputs: Mapping[str, np.ndarray[Any, Any]]) -> int:
    """The bytes of the inputs of a batch."""
    return sum([array.nbytes for array in inputs.values()])
