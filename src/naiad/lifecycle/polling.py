"""Polling: looks at the repositories at intervals, and loads and unloads models as they change there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

from naiad.errors import ModelLoadError, NaiadError, ServerStoppingError, StoreError, UnavailableError
from naiad.lifecycle.state.load_threads import in_thread
from naiad.repository.changes.watch import Findings, Outcome, Watch

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.source import ModelSource
    from naiad.lifecycle.naming import RepositoryNames
    from naiad.options.remote_uri import RemoteUri
    from naiad.repository.remote.repository import RemoteModel

logger = logging.getLogger("naiad")

SETTLING_S: Final = 5.0
"""The longest interval while something changes: a model that is being copied should not be waited for long."""


class PolledManager(Protocol):
    """The part of the manager that polling uses."""

    names: RepositoryNames

    async def follow(
        self, name: str, source: ModelSource | RemoteModel | None, unchanged: frozenset[int] = ...
    ) -> bool: ...

    def note_problem(self, name: str, problem: NaiadError) -> None: ...

    def is_settled(self, name: str) -> bool: ...

    def unfetched(self) -> frozenset[str]: ...


class Polling:
    """Looks every ``interval_s`` seconds, sooner while something changes. Used on the event loop only."""

    def __init__(self, manager: PolledManager, watch: Watch, interval_s: float) -> None:
        self._manager = manager
        self._watch = watch
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._ended: dict[str, Outcome] = {}
        self._refused: Mapping[str, str] = {}
        self._unreadable: Mapping[Path | RemoteUri, str] = {}

    def start(self) -> None:
        """Start to look; called once the models of the start were tried."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop looking. The manager waits for the loads that were begun."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            is_moving = False
            try:
                is_moving = await self.look()
            except Exception:
                logger.exception("the repositories could not be looked at")
            await asyncio.sleep(min(self._interval_s, SETTLING_S) if is_moving else self._interval_s)

    async def look(self) -> bool:
        """Look once and begin the loads and unloads that follow from it; whether the next look should come soon."""
        # Models that could not be fetched are tried again at each look.
        busy = frozenset(self._busy)
        ended = dict.fromkeys(self._manager.unfetched() - busy, Outcome.NOT_NOW) | self._ended
        # Before the await: what ends during the look is for the next one.
        self._ended = {}
        # Read here: the states of models belong to the loop, and ``_look`` runs in a thread.
        settled = frozenset(name for name in self._manager.names.known if self._manager.is_settled(name))
        findings = await in_thread(self._look, ended, busy, settled.__contains__)
        # Before the operations below, which tell models of a repository from unknown ones by it.
        self._manager.names.known = findings.names
        self._log_unreadable(findings.unreadable)
        self._refuse(findings.refused)
        for change in findings.changes:
            logger.info("model '%s' is new in its repository, or has changed: loading it", change.name)
            self._begin(change.name, change.source, change.unchanged)
        for name in findings.removed:
            logger.info("model '%s' is gone from its repository: unloading it", name)
            self._begin(name, None, frozenset())
        return findings.is_moving

    @property
    def is_busy(self) -> bool:
        """Whether a load or an unload that a look began is not over."""
        return bool(self._busy)

    async def wait(self) -> None:
        """Wait until the loads and unloads that the looks began are over."""
        while self._busy:
            await asyncio.wait(self._busy.values())

    def _look(self, ended: Mapping[str, Outcome], busy: frozenset[str], is_settled: Callable[[str], bool]) -> Findings:
        for name, outcome in ended.items():
            self._watch.note(name, outcome)
        return self._watch.look(busy, is_settled)

    def _begin(self, name: str, source: ModelSource | RemoteModel | None, unchanged: frozenset[int]) -> None:
        self._busy[name] = asyncio.get_running_loop().create_task(self._follow(name, source, unchanged))

    async def _follow(self, name: str, source: ModelSource | RemoteModel | None, unchanged: frozenset[int]) -> None:
        outcome = Outcome.FAILED
        try:
            if await self._manager.follow(name, source, unchanged):
                outcome = Outcome.SERVES
        except ServerStoppingError:
            # Without the warning below: nothing is tried again.
            outcome = Outcome.NOT_NOW
        except (UnavailableError, StoreError) as error:
            logger.warning("%s; this is tried again", error)
            outcome = Outcome.NOT_NOW
        except Exception:
            logger.exception("model '%s' could not be brought to what lies in its repository", name)
        finally:
            self._ended[name] = outcome
            del self._busy[name]

    def _refuse(self, refused: Mapping[str, str]) -> None:
        before, self._refused = self._refused, dict(refused)
        for name, text in refused.items():
            # Once for each text: a look comes every few seconds.
            if before.get(name) != text:
                self._manager.note_problem(name, ModelLoadError(text))

    def _log_unreadable(self, unreadable: Mapping[Path | RemoteUri, str]) -> None:
        before, self._unreadable = self._unreadable, dict(unreadable)
        for place, text in unreadable.items():
            if before.get(place) != text:
                logger.warning("'%s' cannot be read, its models stay as they are: %s", place, text)
        for place in before.keys() - unreadable.keys():
            logger.info("'%s' can be read again", place)
