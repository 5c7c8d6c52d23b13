"""Work that would block the event loop, done in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from naiad.errors import InternalError, NaiadError, UnavailableError
from naiad.scheduling.admission import RequestBudget

log = logging.getLogger(__name__)

OFF_LOOP_BYTES: Final = 1 << 16
"""More bytes than this are compressed and decompressed in a thread: they would block the loop."""

_Outcome = TypeVar("_Outcome")


def use_one_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Give ``loop`` the one thread that does its work: what is begun first ends first. The loop ends it at its end."""
    loop.set_default_executor(ThreadPoolExecutor(1, "naiad-off-loop"))


def run_off_loop(
    work: Callable[[], _Outcome],
    done: Callable[[_Outcome], None],
    failed: Callable[[NaiadError], None],
    budget: RequestBudget,
    size: int,
) -> None:
    """Do ``work`` in the loop's own thread, one after the other, then tell ``done`` or ``failed`` on the loop.

    ``work`` must touch nothing that the loop changes. Until it is done it counts in ``budget``, with the ``size`` bytes
    that it is about.
    """
    budget.take(size)
    future = asyncio.get_running_loop().run_in_executor(None, work)
    future.add_done_callback(partial(_tell, done, failed, partial(budget.let_go, size)))


def _tell(
    done: Callable[[_Outcome], None],
    failed: Callable[[NaiadError], None],
    let_go: Callable[[], None],
    future: asyncio.Future[_Outcome],
) -> None:
    let_go()
    if future.cancelled():
        return
    error = future.exception()
    if error is None:
        done(future.result())
    else:
        failed(_as_naiad_error(error))


def _as_naiad_error(error: BaseException) -> NaiadError:
    if isinstance(error, NaiadError):
        return error
    if isinstance(error, MemoryError):
        return UnavailableError("there is no memory for the request or its answer; try again later")
    log.error("work in a thread failed", exc_info=error)
    return InternalError("internal error while the request was handled; the server's log has the details")
