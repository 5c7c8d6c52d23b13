"""The end-of-turn queue of an event loop: callbacks that run once all input that came together has been read.

Batches of queued requests and the writing of responses wait for that. The loop's own ``call_soon`` would leave them to
its next turn, and each step of an ensemble would wait for another poll of all descriptors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

Callback = Callable[[], object]


class EndOfTurnQueue:
    """Runs callbacks behind the input that is being read. Belongs to one event loop."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Callback] | None = None

    def call(self, loop: asyncio.AbstractEventLoop, callback: Callback) -> None:
        """Call back when the current input has been read; in the next turn of the loop when none is being read."""
        if self._due is None:
            loop.call_soon(callback)
        else:
            self._due.append(callback)

    def begin(self) -> list[Callback] | None:
        """Begin to read input; returns the argument of ``end``."""
        if self._due is not None:
            return None
        due: list[Callback] = []
        self._due = due
        return due

    def end(self, loop: asyncio.AbstractEventLoop, due: list[Callback] | None) -> None:
        """All input has been read: run the callbacks.

        What they request in turn waits for the loop's next turn, so that no chain of callbacks starves everything else.
        """
        if due is None:
            # Nested in other input that is being read: the outermost ``end`` runs the callbacks.
            return
        # Reset first: what a callback requests goes to the loop's next turn.
        self._due = None
        for callback in due:
            try:
                callback()
            except Exception as error:
                # As the loop does with its own callbacks.
                loop.call_exception_handler({"message": f"Exception in callback {callback}", "exception": error})


_ENDS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, EndOfTurnQueue]] = WeakKeyDictionary()


def end_of_turn_queue(loop: asyncio.AbstractEventLoop) -> EndOfTurnQueue:
    """The queue of a loop; may be called in any thread."""
    return _ENDS.setdefault(loop, EndOfTurnQueue())
