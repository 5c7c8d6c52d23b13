"""Checks of readiness: calls of the model's ``is_ready``, beside whatever it executes."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from ..ipc.errors import TritonModelException, describe
from ..ipc.frames import IS_READY

if TYPE_CHECKING:
    from .host import RuntimeHost

LIMIT_S = 5.0


class ReadinessCheck:
    """Runs ``is_ready()`` of a model, one call at a time, each in a thread of its own."""

    def __init__(self, host: RuntimeHost, model: Any) -> None:
        self._host = host
        self._model = model
        self._runs = threading.Lock()

    def start(self, number: int) -> None:
        """Check and report; does nothing while a check runs."""
        if not self._runs.acquire(False):
            return
        report = _Report(self._host, number)
        try:
            threading.Thread(target=self._run, args=(report,), daemon=True).start()
        except RuntimeError as error:
            self._runs.release()
            report.say({"error": f"is_ready() cannot be called: {error}"})

    def _run(self, report: _Report) -> None:
        # A thread cannot be stopped: a check that hangs keeps its own, and the timer reports in its place.
        limit = threading.Timer(LIMIT_S, report.say, [{"error": f"is_ready() gave no answer within {LIMIT_S:g} s"}])
        limit.daemon = True
        limit.start()
        content = self._result()
        limit.cancel()
        # Before the report: the server may start the next check at once.
        self._runs.release()
        report.say(content)

    def _result(self) -> dict[str, Any]:
        try:
            return {"ready": self._call_is_ready()}
        except BaseException as error:
            return {"error": str(error) if type(error) is TritonModelException else describe(error)}

    def _call_is_ready(self) -> bool:
        is_ready = getattr(self._model, "is_ready", None)
        if is_ready is None:
            return True
        result = is_ready()
        if inspect.iscoroutine(result):
            import asyncio

            result = asyncio.run_coroutine_threadsafe(result, self._host.loop()).result(LIMIT_S)
        if not isinstance(result, bool):
            raise TritonModelException("is_ready() must return a boolean value")
        return result


class _Report:
    """The report of a check, which is sent once: by the check or by its time limit."""

    def __init__(self, host: RuntimeHost, number: int) -> None:
        self._host = host
        self._number = number
        self._first = threading.Lock()

    def say(self, content: dict[str, Any]) -> None:
        """Answer, unless that was done."""
        if self._first.acquire(False):
            self._host.out.post_json(IS_READY, self._number, content)
