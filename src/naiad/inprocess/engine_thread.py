"""A server in a thread of this process: its parts from the first load to the last unload."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from naiad.engine.engine import Engine
from naiad.errors import ModelLoadError, OptionError, UnavailableError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.inference.offload import use_one_thread
from naiad.inprocess.inbox import EngineInbox
from naiad.inprocess.loop_thread import LoopThread
from naiad.lifecycle.polling import Polling
from naiad.options import ServerOptions
from naiad.repository.local.layout import model_directory
from naiad.repository.local.overrides import Overrides
from naiad.server.build import Frontend, Parts, build, metrics_application
from naiad.server.listeners import all_listeners
from naiad.server.load_settings import OwnBackends
from naiad.server.process import SWITCH_INTERVAL_S
from naiad.server.reload import reload_keys
from naiad.server.startup import Startup
from naiad.telemetry.logs.server_log import ServerLog

logger = logging.getLogger("naiad")

_Result = TypeVar("_Result")


class EngineThread:
    """Starts and stops a server, and asks its engine. Any thread may use it, except its own.

    Attributes:
        inbox: takes requests.
        addresses: ``host:port`` of each listener, by its name in the log.
    """

    def __init__(self, options: ServerOptions, log: ServerLog, own_backends: OwnBackends) -> None:
        self._options = options
        self._log = log
        self._own_backends = own_backends
        self._thread = LoopThread("naiad-server")
        self._listeners: list[Frontend] = []
        self._polling: Polling | None = None
        self._parts_made: Parts | None = None
        self._loading: asyncio.Task[None] | None = None
        self._switch_interval_s = 0.0
        self.addresses: dict[str, str] = {}
        self.inbox: EngineInbox

    # Start and end

    def start(self, wait_until_ready: bool) -> None:
        """Open the ports and load the models.

        Args:
            wait_until_ready: return when the models are loaded; False to return once the ports are open.

        Raises:
            OptionError: a repository or a port cannot be used, or the models are not those that a port needs.
            ModelLoadError: with ``exit_on_error``, a model cannot be loaded. Nothing is left of the server then.
        """
        self._switch_interval_s = sys.getswitchinterval()
        # As a server does: the threads of instances hand over as often as they do there.
        sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._switch_interval_s))
        self._thread.start()
        try:
            self._thread.complete(self._begin)
            if wait_until_ready:
                self._thread.complete(self._loaded)
        except BaseException:
            self.stop(0)
            raise

    def stop(self, timeout_s: float) -> bool:
        """Complete the requests in flight, unload the models and end the thread.

        Returns:
            Whether all of that was done in ``timeout_s`` seconds; otherwise requests were dropped.
        """
        try:
            return self._thread.complete(lambda: self._end(timeout_s))
        finally:
            self._thread.stop()
            sys.setswitchinterval(self._switch_interval_s)

    async def _begin(self) -> None:
        for text in self._options.warnings:
            logger.warning(text)
        use_one_thread(asyncio.get_running_loop())
        self._parts_made = parts = build(self._options, self._log, self._own_backends)
        self.inbox = EngineInbox(self._thread, parts.engine)
        reload_keys(parts.reloader, parts.options, parts.gates.keys, self._listeners)
        # Functions may be bound later.
        startup = Startup(parts, may_be_empty=True)
        if not parts.catalog.remote:
            startup.read()
        for listener, title in all_listeners(parts):
            await listener.start()
            self._listeners.append(listener)
            if title:
                self.addresses[title] = listener.address
                logger.info("Started %s at %s", title, listener.address)
        self._loading = asyncio.get_running_loop().create_task(self._load(parts, startup))

    async def _load(self, parts: Parts, startup: Startup) -> None:
        begun = monotonic()
        await parts.manager.load_all(await startup.wanted())
        if self._options.exit_on_error and (missing := parts.engine.not_loaded()):
            raise ModelLoadError(
                f"{len(missing)} model(s) cannot be loaded: {'; '.join(missing)}. Server(..., exit_on_error=False) "
                "serves the others"
            )
        if problem := parts.start_problem():
            raise OptionError(problem)
        parts.reloader.start()
        if parts.watch is not None:
            self._polling = Polling(parts.manager, parts.watch, self._options.repository_poll_secs)
            self._polling.start()
        logger.info("the server in this process is ready: %.2f s", monotonic() - begun)

    async def _loaded(self) -> None:
        if self._loading is not None:
            await self._loading

    async def _end(self, timeout_s: float) -> bool:
        parts = self._parts_made
        if parts is None:
            return True
        parts.engine.exiting = True
        deadline = monotonic() + timeout_s
        try:
            if self._loading is not None:
                # Threads that load cannot be interrupted.
                await asyncio.wait((self._loading,))
            if self._polling is not None:
                await self._polling.stop()
            drained = await asyncio.gather(*(listener.drain(timeout_s) for listener in self._listeners))
            parts.engine.tuner.close()
            unloaded = await parts.manager.unload_all(max(0.1, deadline - monotonic()))
            return all(drained) and unloaded
        finally:
            for listener in self._listeners:
                listener.abort()
            parts.close()

    # Questions

    def read(self, question: Callable[[Engine], _Result]) -> _Result:
        """What the engine says, on its event loop.

        Raises:
            UnavailableError: the server is stopped.
            NaiadError: as ``question``.
        """
        engine = self._parts.engine
        return self._thread.run(lambda: question(engine))

    def find(self, name: str, version: str) -> ServingModel:
        """A loaded model; errors as ``Engine.find``."""
        return self.read(lambda engine: engine.find(name, version))

    def metrics(self) -> str:
        """The metrics page."""
        application = metrics_application(self._parts)
        return self._thread.run(lambda: b"".join(application.parts())).decode()

    # Changes

    def load(self, name: str, overrides: Overrides) -> None:
        """Load a model; errors as ``ModelManager.load_model``."""
        self._complete(lambda: self._parts.manager.load_model(name, overrides))

    def unload(self, name: str, unload_dependents: bool) -> None:
        """Unload a model; errors as ``ModelManager.unload_model``."""
        self._complete(lambda: self._parts.manager.unload_model(name, unload_dependents))

    def take_up(self, folder: Path) -> None:
        """Load the model in a folder, in any control mode, in the place of one of its name.

        Raises:
            ModelLoadError: it cannot be loaded; an earlier one still serves.
        """
        listing = model_directory(folder)
        if folder.name not in listing.models:
            raise ModelLoadError("; ".join(problem.located() for problem in listing.problems))
        source = listing.models[folder.name]

        async def follow() -> bool:
            return await self._parts.manager.follow(folder.name, source)

        if not self._complete(follow):
            reasons = [r.get("reason", "") for r in self.read(lambda e: e.index(False)) if r["name"] == folder.name]
            raise ModelLoadError(f"model '{folder.name}' cannot be loaded: {'; '.join(filter(None, reasons))}")

    def _complete(self, coroutine: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        return self._thread.complete(coroutine)

    @property
    def _parts(self) -> Parts:
        if self._parts_made is None:
            raise UnavailableError("the server is not started: call start() first")
        return self._parts_made
