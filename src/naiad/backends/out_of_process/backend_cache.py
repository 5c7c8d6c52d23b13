"""The backends in a framework's process: instances of one loaded version share one, as they do in the server."""

from __future__ import annotations

import logging
import threading
from typing import Any

from naiad.backend_api.backend import Backend, Instance
from naiad.backends import registry
from naiad.backends.out_of_process.load_command import LoadCommand
from naiad.config.messages import ModelConfig
from naiad.config.spec import InstanceGroupSpec, ModelSpec
from naiad.errors import NaiadError
from naiad.execution.instances.runner import failed_to_start

logger = logging.getLogger("naiad")


class CachedBackend:
    """One backend, made and started by the first instance that needs it."""

    def __init__(self) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._backend: Backend | None = None
        self._is_started = False

    def uses_gpus(self, command: LoadCommand) -> bool:
        """Whether the backend runs on the GPUs of this machine; it is made if it is not there yet."""
        with self._lock:
            return self._made(command).uses_gpus()

    def complete(self, command: LoadCommand) -> bytes:
        """The completed configuration, serialised.

        Raises:
            NaiadError: as ``Backend.complete``.
        """
        with self._lock:
            config = _config(command)
            self._made(command).complete(config)
            return bytes(config.SerializeToString())

    def start(self, command: LoadCommand, spec: ModelSpec) -> None:
        """Start the backend, unless that was done.

        Raises:
            NaiadError: as ``Backend.start``.
        """
        # Instances of a version start at the same time: the first loads, and the others wait for it.
        with self._lock:
            backend = self._made(command)
            if not self._is_started:
                backend.config = _config(command)
                backend.start(spec)
                self._is_started = True

    def instance(self, command: LoadCommand, group: InstanceGroupSpec) -> Instance:
        """An instance for the calling thread, of a backend that was started. One after another, as in the server.

        Raises:
            NaiadError: as ``Backend.create_instance``.
            ModelLoadError: something unforeseen, as for an instance in a thread.
        """
        with self._lock:
            try:
                return self._made(command).create_instance(group, command.index)
            except NaiadError:
                raise
            except BaseException as error:
                raise failed_to_start(command.name, error) from error

    def close(self) -> None:
        """Close the backend, if there is one; what it raises is logged, because nobody could act on it."""
        backend, self._backend = self._backend, None
        try:
            if backend is not None:
                backend.close()
        except Exception:
            logger.exception("a backend failed to close")

    def _made(self, command: LoadCommand) -> Backend:
        if self._backend is None:
            self._backend = registry.create(command.backend, command.context, command.remedy)
        return self._backend


class BackendCache:
    """All backends of this process, by the key of their orders."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cached: dict[str, CachedBackend] = {}

    def take(self, key: str) -> CachedBackend:
        """The backend with this key, for one more instance."""
        with self._lock:
            cached = self._cached.setdefault(key, CachedBackend())
            cached.users += 1
            return cached

    def release(self, key: str) -> None:
        """Release the backend of an instance that is gone; the last release closes it."""
        with self._lock:
            cached = self._cached[key]
            cached.users -= 1
            if cached.users:
                return
            del self._cached[key]
        # Outside the lock: closing may take long, and other models need the table.
        cached.close()


def _config(command: LoadCommand) -> Any:
    return ModelConfig.FromString(command.config)
