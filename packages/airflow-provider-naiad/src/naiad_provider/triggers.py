"""Triggers: what deferred tasks wait for, without a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from airflow.triggers.base import BaseTrigger, TriggerEvent

from naiad.client.mlflow import withdraw
from naiad_provider.hook import NaiadHook
from naiad_provider.watch import CanaryWatch, Verdict

# Airflow gives it 30 s.
_KILL_S: Final = 25.0


class CanaryTrigger(BaseTrigger):  # type: ignore[misc]
    """Watches a canary until ``until`` (seconds since 1970), or until it breaks a condition."""

    def __init__(
        self,
        naiad_conn_id: str,
        model: str,
        version: int,
        stable: int,
        conditions: Sequence[Mapping[str, Any]],
        min_requests: int,
        until: float,
        poll_s: float,
        page: str,
    ) -> None:
        super().__init__()
        self._arguments: dict[str, Any] = {
            "naiad_conn_id": naiad_conn_id,
            "model": model,
            "version": version,
            "stable": stable,
            "conditions": list(conditions),
            "min_requests": min_requests,
            "until": until,
            "poll_s": poll_s,
            "page": page,
        }
        self._hook = NaiadHook(naiad_conn_id)
        self._until = until
        self._poll_s = poll_s
        self._watch = CanaryWatch(model, version, stable, conditions, min_requests, page)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments."""
        return "naiad_provider.triggers.CanaryTrigger", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the versions, and the reason why the new one is not healthy, "" when it is."""
        while True:
            is_over = time.time() >= self._until
            verdict = await asyncio.to_thread(seen, self._hook, self._watch, is_over)
            if verdict is not None:
                versions = {name: self._arguments[name] for name in ("version", "stable")}
                yield TriggerEvent({"reason": verdict.reason, **versions})
                return
            await asyncio.sleep(min(self._poll_s, max(0.0, self._until - time.time())))

    async def on_kill(self) -> None:
        """Give the requests back when a user stops the deferred task; Airflow calls this from 3.3 on."""
        await asyncio.to_thread(self._withdraw)

    def _withdraw(self) -> None:
        model, version, stable = (self._arguments[name] for name in ("model", "version", "stable"))
        with self._hook.client(timeout_s=_KILL_S) as client:
            withdraw(client, model, version, stable)


class ModelReadyTrigger(BaseTrigger):  # type: ignore[misc]
    """Waits until a model, or a version of it, is ready."""

    def __init__(self, naiad_conn_id: str, model: str, version: str, poll_s: float) -> None:
        super().__init__()
        self._arguments = {"naiad_conn_id": naiad_conn_id, "model": model, "version": version, "poll_s": poll_s}
        self._model = model
        self._version = version
        self._poll_s = poll_s
        self._hook = NaiadHook(naiad_conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments."""
        return "naiad_provider.triggers.ModelReadyTrigger", self._arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield once it is ready."""
        while not await asyncio.to_thread(is_ready, self._hook, self._model, self._version):
            await asyncio.sleep(self._poll_s)
        yield TriggerEvent({"ready": True})


def seen(hook: NaiadHook, watch: CanaryWatch, is_over: bool) -> Verdict | None:
    """The verdict on the present metrics page. A page that cannot be read is a reason only at the end."""
    try:
        page = hook.metrics()
    except OSError as error:
        return Verdict(f"the metrics cannot be read: {error}") if is_over else None
    return watch.look(page, is_over)


def is_ready(hook: NaiadHook, model: str, version: str) -> bool:
    """Whether a model is ready; a server that cannot be reached has none."""
    with hook.client(timeout_s=30) as client:
        return client.model_ready(model, version)
