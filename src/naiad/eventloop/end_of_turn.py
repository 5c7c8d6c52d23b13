"""What is due when all that came at one time has been taken in: batches of what was queued, the writing of answers.

It is otherwise left to the next turn of the loop, which costs a look at everything that the loop watches, before the
next process gets its batch or an answer leaves. What a process says is taken in as a whole, so nothing has to wait for
more of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

Callback = Callable[[], object]


class EndOfTurnQueue:
    """Takes calls that are due behind what is being taken in. Used on one event loop only."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: list[Callback] | None = None

    def call(self, loop: asyncio.AbstractEventLoop, callback: Callback) -> None:
        """Call back when all is taken in that came together; in the next turn of the loop when nothing is now."""
        if self._due is None:
            loop.call_soon(callback)
        else:
            self._due.append(callback)

    def begin(self) -> list[Callback] | None:
        """Something is about to be taken in; what ``end`` is to be given."""
        if self._due is not None:
            return None
        due: list[Callback] = []
        self._due = due
        return due

    def end(self, loop: asyncio.AbstractEventLoop, due: list[Callback] | None) -> None:
        """All is taken in: do what is due. What that asks for waits for the next turn, so that no chain of steps keeps
        the loop from everything else."""
        if due is None:
            # Within something else that is being taken in.
            return
        self._due = None
        for callback in due:
            try:
                callback()
            except Exception as error:
                # As the loop does with what it calls itself.
                loop.call_exception_handler({"message": f"Exception in callback {callback}", "exception": error})


_ENDS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, EndOfTurnQueue]] = WeakKeyDictionary()


def end_of_turn_queue(loop: asyncio.AbstractEventLoop) -> EndOfTurnQueue:
    """The one of a loop; may be called in any thread."""
    return _ENDS.setdefault(loop, EndOfTurnQueue())
