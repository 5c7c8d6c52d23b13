"""Warming up an instance whose process has ended and was started again: it gets requests once it is warm."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from naiad.config.spec import ModelSpec
from naiad.execution.instances.warmup import Sample, Warmup
from naiad.execution.worker.events import WorkerEventSink
from naiad.execution.worker.instance import ProcessInstance
from naiad.execution.worker.warmup import WarmProcess

logger = logging.getLogger("naiad")

_WARMING: Final = "it was started again and is warming up"


class RestartWarmup:
    """Called with an instance on the event loop when its process is there again.

    Args:
        spec: of the model.
        samples: makes what is run; called in a thread, each time. Nothing is kept for it, since samples may be large.
        answers: is told ``worker_ready`` when the instance is warm. One that fails to run its samples serves all the
            same: its version was ready before, and is better slow than gone.
    """

    def __init__(
        self,
        spec: ModelSpec,
        samples: Callable[[], Sequence[Sample]],
        answers: WorkerEventSink[ProcessInstance],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._spec = spec
        self._samples = samples
        self._answers = answers
        self._loop = loop

    def __call__(self, instance: ProcessInstance) -> None:
        instance.problem = _WARMING
        name = f"naiad-warm-{instance.name}"
        threading.Thread(target=self._warm, args=[instance, instance.pid], name=name, daemon=True).start()

    def _warm(self, instance: ProcessInstance, pid: int) -> None:
        try:
            warmup = Warmup(self._samples(), lambda: "" if _is_there(instance, pid) else "its process has ended")
            WarmProcess(instance, self._spec, warmup, self._answers, self._loop).run()
        except Exception as error:
            logger.warning("%s is not warm: %s", instance.name, error)
        # The server may have ended meanwhile.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, instance, pid)

    def _done(self, instance: ProcessInstance, pid: int) -> None:
        if _is_there(instance, pid):
            instance.problem = ""
            self._answers.worker_ready(instance)


def _is_there(instance: ProcessInstance, pid: int) -> bool:
    """Whether the instance still has that process. Otherwise another one is warmed up by another call."""
    return instance.is_up and instance.pid == pid
