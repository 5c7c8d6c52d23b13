"""One server from start to exit: it listens, loads its models, serves, drains."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic

from naiad.backend_api.host_policy import HostPolicies
from naiad.errors import NaiadError, OptionError
from naiad.frontends.inference.offload import use_one_thread
from naiad.gpus.lost import lost_gpus
from naiad.lifecycle.polling import Polling
from naiad.options import ServerOptions, option_rows
from naiad.server.build import Frontend, Parts, build
from naiad.server.listeners import all_listeners
from naiad.server.process import (
    StopSignals,
    allow_open_files,
    exit_now,
    leave_threads,
    place_frontend,
    run_on_loop,
)
from naiad.server.reload import reload_keys
from naiad.server.startup import Startup
from naiad.shared_memory.registry import MAX_REGIONS
from naiad.telemetry.logs.server_log import ServerLog, table_log
from naiad.telemetry.logs.tables import format_table
from naiad.version import __version__

logger = logging.getLogger("naiad")


MakeListeners = Callable[[Parts], Iterator[tuple[Frontend, str]]]
"""Starts the listeners of a server, like ``all_listeners``."""


class ServingProcess:
    """Serves with the given parts until a signal stops it. ``run`` returns the exit code."""

    def __init__(self, parts: Parts, make_listeners: MakeListeners = all_listeners) -> None:
        self._parts = parts
        self._make_listeners = make_listeners
        self._options = parts.options
        self._manager = parts.manager
        self._engine = parts.engine
        self._startup = Startup(parts)
        self._listeners: list[Frontend] = []
        # The list itself: the listeners join it when they start.
        reload_keys(parts.reloader, parts.options, parts.gates.keys, self._listeners)
        self._stop = StopSignals(self._begin_to_stop)

    async def run(self) -> int:
        """Serve until SIGINT or SIGTERM, or until a GPU is lost with ``--on-gpu-loss=exit``.

        Raises:
            OptionError: a repository or an address cannot be used.
        """
        begun = monotonic()
        parts, options = self._parts, self._options
        if options.log_verbose:
            table_log(logger, logging.INFO, "options", format_table(("Option", "Value"), option_rows(options)))
        if problem := parts.tracing.problem():
            raise OptionError(f'Bad option: "--trace-config". {problem}')
        # Before any port is opened: a signal stops the server in an orderly way, also while models load.
        self._stop.watch(self._reload if parts.reloader.has_files or options.log_file else None)
        if options.on_gpu_loss == "exit":
            loop = asyncio.get_running_loop()
            lost_gpus.when_lost = partial(loop.call_soon_threadsafe, self._stop.stop, "lost GPU")
        if not parts.catalog.remote:
            # A missing folder is reported before any port is opened; a remote store may take its time.
            self._startup.read()
        try:
            # Ports open before models are loaded: health checks are served meanwhile.
            await self._listen()
            await self._load()
            if options.exit_on_error and self._engine.not_loaded():
                logger.error("error: creating server: Internal - failed to load all models%s", self._remedy())
                self._engine.exiting = True
                await self._shut_down()
                return 1
            if problem := parts.start_problem():
                logger.error("error: creating server: %s", problem)
                self._engine.exiting = True
                await self._shut_down()
                return 1
            parts.reloader.start()
            if not self._stop.received.is_set():
                if not self._engine.failure:
                    logger.info("Naiad %s is ready: %.2f s", __version__, monotonic() - begun)
                await self._serve_until_stopped()
            await self._delay_shutdown()
            code = await self._shut_down()
            return 1 if options.on_gpu_loss == "exit" and lost_gpus.problem else code
        finally:
            lost_gpus.when_lost = None
            # Listeners first: a request that is still in flight may use shared memory of the parts.
            for listener in self._listeners:
                listener.abort()
            parts.close()

    def _reload(self) -> None:
        """SIGHUP: what lies in files is read again, and the log file may have been renamed."""
        self._parts.log.reopen_file()
        self._parts.reloader.reload()

    async def _listen(self) -> None:
        for listener, title in self._make_listeners(self._parts):
            await listener.start()
            self._listeners.append(listener)
            if title:
                logger.info("Started %s at %s", title, listener.address)

    async def _load(self) -> None:
        loading = asyncio.ensure_future(self._load_wanted())
        stopping = asyncio.ensure_future(self._stop.received.wait())
        await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            # A signal came while models load. Threads that load cannot be interrupted, so nothing waits for them.
            # Models that are ready may have requests in flight, which are finished. The workers notice the end of the
            # server and stop by themselves; the reaper ends the workers that hang.
            leave_threads(0 if await self._drain_listeners() else 1)
        loading.result()
        # Models that nobody asked to load have no state.
        found = [row for row in self._engine.index(ready_only=False) if row.get("state")]
        rows = [(row["name"], row.get("version", ""), _status(row)) for row in found]
        table_log(logger, logging.INFO, "models", format_table(("Model", "Version", "Status"), rows))
        # Models stay for long: the garbage collector need not look at their objects again.
        gc.collect()
        gc.freeze()

    def _remedy(self) -> str:
        """What to do where some models did load, as the end of a sentence."""
        served = len(self._engine.loaded_models())
        return f"; with --exit-on-error=false the server goes on with what did load ({served})" if served else ""

    async def _load_wanted(self) -> None:
        await self._manager.load_all(await self._startup.wanted())
        for call in self._parts.on_loaded:
            call()

    async def _serve_until_stopped(self) -> None:
        if self._parts.watch is None or self._engine.failure:
            await self._stop.received.wait()
            return
        polling = Polling(self._manager, self._parts.watch, self._options.repository_poll_secs)
        polling.start()
        try:
            await self._stop.received.wait()
        finally:
            # Before the models are unloaded: a look must not load one meanwhile.
            await polling.stop()

    def _begin_to_stop(self, signal_name: str) -> None:
        timeout_s = self._options.exit_timeout_secs
        logger.info("%s: Waiting for in-flight requests to complete, up to %d s", signal_name, timeout_s)
        # Who waits for the server to end can see what it waits for.
        for model in self._engine.loaded_models():
            if model.in_flight:
                name, version = model.name, model.version
                logger.info("Model '%s' (version %d) has %d in-flight inferences", name, version, model.in_flight)
        # Without a model there are no requests that a load balancer would have to send elsewhere.
        if self._options.shutdown_delay and self._manager.loaded:
            self._engine.leaving = True
        else:
            self._engine.exiting = True

    async def _delay_shutdown(self) -> None:
        """Keep serving for ``--shutdown-delay``, in which load balancers notice that the server is not ready."""
        if self._engine.leaving:
            logger.info("not ready any more, serving for another %d s", self._options.shutdown_delay)
            await asyncio.sleep(self._options.shutdown_delay)
            self._engine.exiting = True

    async def _shut_down(self) -> int:
        deadline = monotonic() + self._options.exit_timeout_secs
        # Before the models drain: none is changed any more.
        self._engine.tuner.close()
        drained = await self._drain_listeners()
        # One deadline for both: what draining has used, the unloads do not have.
        unloaded = await self._manager.unload_all(max(0.0, deadline - monotonic()))
        if not (drained and unloaded):
            logger.error("Exit timeout expired. Exiting immediately.")
            exit_now(1)
        logger.info("stopped")
        return 0

    async def _drain_listeners(self) -> bool:
        """Finish the requests in flight and close; False when that took longer than ``--exit-timeout-secs``."""
        timeout_s = self._options.exit_timeout_secs
        return all(await asyncio.gather(*(listener.drain(timeout_s) for listener in self._listeners)))


def _status(row: Mapping[str, str]) -> str:
    return f"{row['state']}: {row['reason']}" if row.get("reason") else row.get("state", "")


def run(options: ServerOptions, log: ServerLog, make_listeners: MakeListeners = all_listeners) -> int:
    """Serve with ``options`` until a signal stops the server; returns the exit code of the process.

    Args:
        log: the installed log, whose settings the API can change.
        make_listeners: makes the listeners; those of the engine's process where front-end processes serve the ports.
    """
    allow_open_files(
        options.http_max_connections,
        options.grpc_max_connections if options.serves_grpc else 0,
        MAX_REGIONS if options.allow_client_shm else 0,
        options.http_max_connections * (options.allow_sagemaker + options.allow_vertex_ai + options.allow_openai),
    )
    try:
        return run_on_loop(_serve(options, log, make_listeners))
    except OptionError as error:
        logger.error("error: creating server: %s", error)
        return 1
    except NaiadError as error:
        logger.error("error: creating server: Internal - %s", error)
        return 1


async def _serve(options: ServerOptions, log: ServerLog, make_listeners: MakeListeners) -> int:
    # One thread for work that is too long for the loop: large bodies are then decompressed one after the other.
    use_one_thread(asyncio.get_running_loop())
    parts = build(options, log)
    place_frontend(HostPolicies.of(options.host_policies))
    return await ServingProcess(parts, make_listeners).run()
