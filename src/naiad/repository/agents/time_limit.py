"""A time limit for repository agents, which are not Naiad's own code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_R = TypeVar("_R")


class AgentTimeoutError(Exception):
    """An agent exceeded its time limit."""


class _Call(Generic[_R]):
    """One call in a thread of its own."""

    def __init__(self, function: Callable[[], _R]) -> None:
        self._function = function
        self._result: _R
        self._error: BaseException | None = None
        self._is_over = threading.Event()

    def work(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:
            self._error = error
        finally:
            self._is_over.set()

    def wait(self, limit_s: float) -> _R:
        if not self._is_over.wait(limit_s):
            raise AgentTimeoutError(f"it took longer than {limit_s:g} s (--repoagent-timeout-secs)")
        if self._error is not None:
            raise self._error
        return self._result


def in_time(function: Callable[[], _R], limit_s: float) -> _R:
    """The result of ``function``, within ``limit_s`` seconds; 0 for no limit.

    A thread cannot be ended: after the limit it runs on, and nothing waits for it.

    Raises:
        AgentTimeoutError: it took longer.
        BaseException: what ``function`` raises.
    """
    if not limit_s:
        return function()
    call = _Call(function)
    # A daemon: an agent that never returns must not keep the server from exiting.
    threading.Thread(target=call.work, name="naiad-agent", daemon=True).start()
    return call.wait(limit_s)
