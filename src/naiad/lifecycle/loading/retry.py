"""Retries of loads that failed (``--model-load-retry-count``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from naiad.errors import BackendUnavailableError, ConfigError, ServerStoppingError
from naiad.lifecycle.state.load_errors import as_load_error, located

logger = logging.getLogger("naiad")

FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
FINAL: Final = (ConfigError, BackendUnavailableError, ServerStoppingError)
"""Errors that another try does not solve."""

_R = TypeVar("_R")


async def with_retries(
    label: str, count: int, load: Callable[[], Awaitable[_R]], is_wanted: Callable[[], bool] = lambda: True
) -> _R:
    """The result of ``load``, which is called up to ``count`` times more while it fails and ``is_wanted``.

    The pauses between the calls grow.

    Raises:
        Exception: what the last call raised.
    """
    for left in range(count, 0, -1):
        try:
            return await load()
        except FINAL:
            raise
        except Exception as error:
            if not is_wanted():
                raise
            # The exponent is bounded, since 2 ** 1024 is too large for a float.
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(count - left, 10))
            problem = located(as_load_error(error))
            logger.warning("could not load %s, %d more tries, the next in %.1f s: %s", label, left, pause_s, problem)
            await asyncio.sleep(pause_s)
            if not is_wanted():
                # It was unloaded meanwhile.
                raise
    return await load()
