"""The start and the end of the instances of a model: workers start in parallel, the others one after another."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Final, Protocol

LEAST_AT_ONCE: Final = 4
"""The fewest workers that start in parallel: much of a start is waiting for files or a device."""


class Startable(Protocol):
    """An instance that is not started yet."""

    def start(self) -> None:
        """Start and wait until it is ready.

        Raises:
            NaiadError: it could not.
        """

    def stop(self) -> None:
        """Abort the start that is under way, or end the instance."""


class Endable(Protocol):
    """An instance that may run."""

    def stop(self) -> None:
        """Ask it to finish and to end."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait for that end, at most ``timeout`` seconds; whether it has come."""


def end_all(instances: Sequence[Endable], timeout: float | None) -> bool:
    """End instances after what they run; False when one did not end in ``timeout`` seconds."""
    # All of them before the first ``join``, so that they end side by side.
    for instance in instances:
        instance.stop()
    deadline = None if timeout is None else monotonic() + timeout
    ended = [instance.join(deadline and max(0.0, deadline - monotonic())) for instance in instances]
    return all(ended)


def start_one_by_one(instances: Sequence[Startable]) -> None:
    """Start instances in their order.

    For instances in this process: a framework loads what all of them share with the first one, and uses all cores while
    it loads a model.

    Raises:
        NaiadError: that of the first that failed; those after it are not started.
    """
    for instance in instances:
        instance.start()


def start_all(instances: Sequence[Startable], cores: int) -> None:
    """Start workers, as many at a time as there are ``cores``, at least ``LEAST_AT_ONCE``.

    Raises:
        NaiadError: that of the first that failed. The others are stopped, and none is still starting then.
    """
    if len(instances) < 2:
        start_one_by_one(instances)
        return
    with ThreadPoolExecutor(min(len(instances), max(cores, LEAST_AT_ONCE)), "naiad-start") as pool:
        starts = [pool.submit(instance.start) for instance in instances]
        done, left = wait(starts, return_when=FIRST_EXCEPTION)
        error = _first_error(starts, done)
        if error is None:
            return
        # Before any is stopped: the pool would begin the next start in its place.
        for start in left:
            start.cancel()
        for instance in instances:
            instance.stop()
    # Leaving the pool has waited for the starts that were under way.
    raise error


def _first_error(starts: Sequence[Future[None]], done: set[Future[None]]) -> BaseException | None:
    """The error of the first instance among those that failed so far."""
    return next((error for start in starts if start in done and (error := start.exception())), None)
