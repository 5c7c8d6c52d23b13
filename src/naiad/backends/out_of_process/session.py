"""One instance in a framework's process, and its connection to the server."""

from __future__ import annotations

import base64
import json
import os
import platform
import socket
import sys
from collections.abc import Callable
from typing import Any

from naiad.backend_api.backend import Instance
from naiad.backends import registry
from naiad.backends.out_of_process.backend_cache import BackendCache, CachedBackend
from naiad.backends.out_of_process.batch_codec import BatchResponseWriter, read_whole
from naiad.backends.out_of_process.input_memory import InputMemory
from naiad.backends.out_of_process.load_command import LoadCommand, unpack
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, InternalError, ModelLoadError, NaiadError
from naiad.execution.instances.runner import close_instance, run_once
from naiad.gpus.lost import lost_gpus
from naiad.processes.freed_memory import return_freed_memory
from naiad.worker.ipc.errors import ServerGoneError
from naiad.worker.ipc.frames import CONFIG, EXECUTE, FAILED, INIT, LOG, OPEN, READY
from naiad.worker.ipc.reader import Channel, Waiter
from naiad.worker.ipc.types import Place
from naiad.worker.runtime.inbox import Inbox


class FrameworkSession:
    """Executes the commands and batches of one connection, in the thread that calls ``serve``.

    Args:
        backends: those of this process.
        opened: takes the descriptor of a connection that is to be served as well.
    """

    def __init__(
        self, connection: socket.socket, backends: BackendCache, opened: Callable[[int], object] | None = None
    ) -> None:
        self._channel = Channel(connection, self._handle)
        self._out = BatchResponseWriter(connection, self._poll)
        self._main = Waiter()
        # Without checks of readiness: ``READY`` says that there is no ``is_ready()`` to call.
        self._arrivals = Inbox(self._channel, self._out, self._main.wake, lambda number: None)
        self._memory = InputMemory()
        self._backends = backends
        self._opened = opened
        self._key = ""
        self._cached: CachedBackend | None = None
        self._instance: Instance | None = None
        self._spec: ModelSpec | None = None
        self._name = ""

    def serve(self) -> int:
        """Serve until the server ends this session, or is gone; the exit code."""
        try:
            while True:
                kind, number, payload, schemas = self._arrivals.next(self._main)
                if kind == EXECUTE:
                    self._execute(number, payload, schemas)
                elif kind != INIT:
                    return 0
                elif not self._obey(unpack(json.loads(payload))):
                    return 1
                # It would keep the inputs of the batch in memory until the next one comes.
                del payload
        except ServerGoneError:
            return 1
        finally:
            self._end()

    def look(self) -> None:
        """Read what has arrived, unless the serving thread does; called now and then by another thread.

        Raises:
            ServerGoneError: the server closed the connection.
        """
        self._channel.poll()
        self._out.trim()
        self._memory.trim()

    def log(self, level: str, message: str, **more: Any) -> None:
        """Write a line into the server's log, if there is still a server."""
        try:
            self._out.post_json(LOG, 0, {"level": level, "file": __file__, "line": 0, "message": message, **more})
        except (ServerGoneError, OSError):
            return

    def _poll(self) -> None:
        self._channel.poll()

    def _handle(self, kind: int, number: int, payload: bytearray) -> None:
        if kind == OPEN and self._opened is not None:
            self._opened(self._channel.take_descriptor())
        else:
            self._arrivals.handle(kind, number, payload)

    # Batches

    def _execute(self, number: int, payload: bytearray, schemas: Any) -> None:
        spec, instance = self._spec, self._instance
        if spec is None or instance is None:
            raise InternalError("a batch came before the order to make an instance")
        try:
            batch = read_whole(payload, schemas, self._arrivals.locate, spec, self._join)
        except MemoryError:
            # The server runs its requests again, in smaller batches.
            text = f"there is no memory for the inputs of a batch of model '{spec.name}'"
            self._out.send_error(number, BackendError(text))
            return
        run_once(instance, batch, spec)
        self._out.send_results(number, batch, spec)
        if lost_gpus.problem:
            # Sent before, and nothing that still runs in this process can end well. The server starts another.
            os._exit(1)

    def _join(self, parts: list[Place], size: int) -> Place:
        joined = self._memory.joined(parts, size)
        self._out.drop(parts)
        return joined

    # Loading

    def _obey(self, command: LoadCommand) -> bool:
        """Execute one step of loading; False when it failed, which was reported to the server."""
        try:
            kind, content = self._step(command)
        except ServerGoneError:
            raise
        except BaseException as error:
            self._report(error if isinstance(error, NaiadError) else _unexpected(error))
            return False
        # Before the reply, on which the server measures the process.
        return_freed_memory()
        self._out.post_json(kind, 0, content)
        return True

    def _step(self, command: LoadCommand) -> tuple[int, dict[str, Any]]:
        if self._cached is None:
            self._key = command.key
            self._cached = self._backends.take(command.key)
        # This thread runs the instance, and creates what it runs in.
        command.affinity.apply()
        if command.step == "uses_gpus":
            return CONFIG, {"uses_gpus": self._cached.uses_gpus(command)}
        if command.step == "complete":
            return CONFIG, {"config": base64.b64encode(self._cached.complete(command)).decode()}
        if command.spec is None:
            raise InternalError(f"the order to {command.step} model '{command.context.model}' has no specification")
        self._cached.start(command, command.spec)
        if command.group is not None:
            self._name, self._spec = command.name, command.spec
            self._instance = self._cached.instance(command, command.group)
            self._instance.output_memory = self._out.reserve
        return READY, {
            "is_ready": False,
            "pid": os.getpid(),
            "python": platform.python_version(),
            "framework": _loaded_framework(command.backend),
        }

    def _report(self, error: NaiadError) -> None:
        # The server raises the error class of that name.
        content = {"message": str(error), "traceback": "", "error": type(error).__name__}
        self._out.post_json(FAILED, 0, content)

    def _end(self) -> None:
        """Close the instance and the backend. The connection comes last: its end says that nothing is left of them."""
        instance, self._instance = self._instance, None
        if instance is not None:
            close_instance(instance, self._name)
            # The last reference: the backend may close only when its instances are gone.
            del instance
        if self._cached is not None:
            self._cached = None
            self._backends.release(self._key)
        # The parts of a session refer to each other. In a shared process their memory would stay until a collection of
        # garbage, which may be hours away.
        self._arrivals.close()
        self._out.close()
        self._channel.close()


def _loaded_framework(backend: str) -> str:
    """The name and version of the framework that the backend has imported; "" without one."""
    name = registry.BACKENDS[backend].framework
    loaded = sys.modules.get(name)
    return "" if loaded is None else f"{name} {getattr(loaded, '__version__', 'of unknown version')}"


def _unexpected(error: BaseException) -> ModelLoadError:
    return ModelLoadError(f"{type(error).__name__}: {error}")
