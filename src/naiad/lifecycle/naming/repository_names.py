"""Which models lie in the repositories, read again whenever somebody asks. Used on the event loop only."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from naiad.errors import NaiadError
from naiad.lifecycle.state.load_threads import in_thread

if TYPE_CHECKING:
    from naiad.lifecycle.state.model_requests import Done
    from naiad.repository.catalog import Catalog

logger = logging.getLogger("naiad")


class RepositoryNames:
    """The names of all models in the repositories.

    Attributes:
        known: those that were there when somebody looked last.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.known: frozenset[str] = frozenset()
        self._catalog = catalog
        self._askers: list[Done] = []
        self._reading: asyncio.Task[None] | None = None

    def refresh(self, done: Done) -> None:
        """Look again; ``done`` gets None when ``known`` is as new as this call, or could not be renewed.

        All who ask while somebody looks share the next look: one thread does for any number.
        """
        self._askers.append(done)
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_for_all())

    async def _read_for_all(self) -> None:
        try:
            while self._askers:
                asked, self._askers = self._askers, []
                try:
                    await self._read()
                finally:
                    for done in asked:
                        # Each for itself: one that fails must not take the others' answers.
                        asyncio.get_running_loop().call_soon(done, None)
        finally:
            self._reading = None

    async def _read(self) -> None:
        try:
            self.known = await in_thread(self._catalog.names)
        except (NaiadError, OSError) as error:
            logger.warning("the repositories cannot be read, the index shows what was there before: %s", error)
        except Exception:
            logger.exception("the repositories cannot be read, the index shows what was there before")
