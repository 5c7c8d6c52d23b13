"""Models of folders that callers name while the server runs, each loaded under a name that the caller chooses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from naiad.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NaiadError,
    UnavailableError,
    UnsupportedError,
)
from naiad.lifecycle.state.load_threads import in_thread
from naiad.repository.local.added import AddedRepository, added_repository
from naiad.repository.local.layout import check_model_name

if TYPE_CHECKING:
    from naiad.lifecycle.manager import ModelManager
    from naiad.lifecycle.state.model_requests import Done
    from naiad.repository.catalog import Catalog

logger = logging.getLogger("naiad")

CLOSE_S: Final = 350.0
"""How long an unload waits for requests in flight, in seconds: SageMaker itself waits 360 s."""
MAX_LOADS: Final = 64
"""How many loads may be under way: each looks at folders in a thread before it takes its turn."""
_NOT_EXPLICIT: Final = (
    "repository registration is not allowed if model control mode is not EXPLICIT: start the server with "
    "--model-control-mode=explicit"
)
_Result = TypeVar("_Result")


class AddedModel(NamedTuple):
    """A loaded model: the repository that was added for it, and the name or key by which the engine finds it."""

    repository: AddedRepository
    key: str


LoadDone = Callable[[AddedModel | None, NaiadError | None], None]
"""Called with the loaded model, or with the error."""


class AddedModels:
    """Adds repositories, loads their models, and takes both away again. Used on the event loop only.

    Args:
        manager: loads the models.
        catalog: the manager's catalog.
        is_explicit: models may be loaded and unloaded on request.
        close_s: the longest wait for the requests in flight of an unloaded model, in seconds.
    """

    def __init__(self, manager: ModelManager, catalog: Catalog, is_explicit: bool, close_s: float = CLOSE_S) -> None:
        self._manager = manager
        self._catalog = catalog
        self._is_explicit = is_explicit
        self._close_s = close_s
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loads = 0

    def begin_load(self, folder: Path, name: str, done: LoadDone) -> None:
        """Load the model in ``folder`` as ``name``; an ensemble with its steps. Then ``done`` is called.

        Its errors: ``UnavailableError`` with too many loads, ``UnsupportedError`` outside of explicit mode,
        ``AlreadyExistsError`` where the repository or the name is taken, and those of ``added_repository`` and
        ``ModelManager.load_model``.
        """
        if self._loads >= MAX_LOADS:
            done(None, UnavailableError(f"{self._loads} models are being loaded: try again when they are there"))
            return
        self._loads += 1
        self._begin(self._counted(self._load(folder, name)), done)

    def begin_unload(self, model: AddedModel, done: Done) -> None:
        """Unload a model with the steps that were loaded for it, and remove its repository once it is closed.

        Then ``done`` is called; its errors are those of ``ModelManager.unload_model``.
        """
        self._begin(self._unload(model), lambda result, error: done(error))

    async def _counted(self, load: Coroutine[Any, Any, AddedModel]) -> AddedModel:
        try:
            return await load
        finally:
            self._loads -= 1

    async def _load(self, folder: Path, name: str) -> AddedModel:
        if not self._is_explicit:
            raise UnsupportedError(_NOT_EXPLICIT)
        check_model_name(name)
        found = await in_thread(added_repository, folder, name)
        model = AddedModel(found, f"{found.place}/{name}" if self._catalog.has_namespaces else name)
        entry = self._manager.entries.get(model.key)
        if entry is not None and entry.serving is not None:
            raise AlreadyExistsError(f"a model '{name}' is loaded from another repository: unload it first")
        self._catalog.added.add(found, names_repeat=self._catalog.has_namespaces)
        try:
            await in_thread(self._check_names, found)
            await self._manager.load_model(model.key)
        except BaseException:
            try:
                # Readiness and the index would otherwise go on to show a model that nobody has.
                with suppress(NaiadError):
                    await self._manager.unload_model(model.key, unload_dependents=True)
            finally:
                self._catalog.added.remove(found)
            raise
        self._list_again()
        return model

    def _check_names(self, found: AddedRepository) -> None:
        """Refuse a repository with a model whose name another one has, too. Reads files: for threads.

        It would be loaded from either of them, and an ensemble would run with another one's step.
        """
        if self._catalog.has_namespaces:
            return
        taken = self._catalog.outline().unavailable
        for name in found.listing().models.keys() & taken:
            raise InvalidArgumentError(f"{taken[name]}, or start the server with --model-namespacing=true")

    async def _unload(self, model: AddedModel) -> None:
        before = self._manager.versions.retiring
        await self._manager.unload_model(model.key, unload_dependents=True)
        if closing := self._manager.versions.retiring - before:
            _, late = await asyncio.wait(closing, timeout=self._close_s)
            if late:
                logger.error("model '%s' still has requests in flight after %g s", model.key, self._close_s)
        self._catalog.added.remove(model.repository)
        self._list_again()

    def _list_again(self) -> None:
        # Models that are evicted are loaded again by the names that are listed.
        self._manager.names.refresh(lambda error: None)

    def _begin(
        self, work: Coroutine[Any, Any, _Result], done: Callable[[_Result | None, NaiadError | None], None]
    ) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The loop refers to its tasks weakly.
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, done))

    def _ended(self, done: Callable[[_Result | None, NaiadError | None], None], task: asyncio.Task[_Result]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            done(None, UnavailableError("the server has ended"))
            return
        error = task.exception()
        if error is None:
            done(task.result(), None)
        elif isinstance(error, NaiadError):
            done(None, error)
        else:
            logger.error("an operation on a model failed", exc_info=error)
            done(None, InternalError("the operation failed inside the server, see its log"))
