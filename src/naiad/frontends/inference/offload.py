"""Work that would block the event loop, done in a thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from naiad.errors import INTERNAL_FAILURE, InternalError, NaiadError, UnavailableError
from naiad.scheduling.admission import RequestBudget

log = logging.getLogger(__name__)

OFF_LOOP_BYTES: Final = 1 << 16
"""More bytes than this are compressed and decompressed in a thread; on the loop they would block it."""

_Outcome = TypeVar("_Outcome")


def use_one_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Give ``loop`` an executor of one thread, so that work ends in the order of its start. The loop closes it."""
    loop.set_default_executor(ThreadPoolExecutor(1, "naiad-off-loop"))


def run_off_loop(
    work: Callable[[], _Outcome],
    done: Callable[[_Outcome], None],
    failed: Callable[[NaiadError], None],
    budget: RequestBudget,
    size: int,
) -> None:
    """Do ``work`` in the offload thread, after earlier work, then call ``done`` or ``failed`` on the loop.

    ``work`` must touch nothing that the loop changes. Until it is done ``budget`` counts it as a request of ``size``
    bytes.
    """
    budget.take(size)
    future = asyncio.get_running_loop().run_in_executor(None, work)
    future.add_done_callback(partial(_deliver, done, failed, partial(budget.release, size)))


def _deliver(
    done: Callable[[_Outcome], None],
    failed: Callable[[NaiadError], None],
    release: Callable[[], None],
    future: asyncio.Future[_Outcome],
) -> None:
    # Before the callback: it may submit the request, which counts the same bytes anew.
    release()
    # Only the end of the loop cancels it.
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
    return InternalError(INTERNAL_FAILURE)
