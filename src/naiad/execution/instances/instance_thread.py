"""A thread of an instance: creates it, lets it serve, closes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from naiad.backend_api.backend import Instance
from naiad.backend_api.request_batch import RequestBatchInstance
from naiad.errors import NaiadError
from naiad.execution.instances.runner import close_instance, failed_to_start

Created = TypeVar("Created", bound=Instance | RequestBatchInstance)


class InstanceThread(Generic[Created]):
    """The thread that an instance is created, used and closed in.

    Args:
        name: of the instance.
        create: makes the instance; called in the thread.
        serve: runs batches on it, and returns when it is to be closed; called in the thread.
    """

    def __init__(self, name: str, create: Callable[[], Created], serve: Callable[[Created], object]) -> None:
        self._name = name
        self._created = threading.Event()
        self._failure: NaiadError | None = None
        # A thread that ends lets go of its arguments, which are methods of the owner: kept here, they were a cycle.
        self._thread = threading.Thread(target=self._main, args=(create, serve), name=f"naiad-{name}", daemon=True)

    def start(self) -> None:
        """Create the instance and wait until it is there; called by a loading thread.

        Raises:
            NaiadError: the instance could not be created.
        """
        self._thread.start()
        self._created.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of ``serve``, at most ``timeout`` seconds; True when the thread has ended, or was never
        started."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _main(self, create: Callable[[], Created], serve: Callable[[Created], object]) -> None:
        try:
            instance = create()
        except NaiadError as error:
            self._failure = error
            return
        except BaseException as error:
            self._failure = failed_to_start(self._name, error)
            return
        finally:
            # Also after a failure, since ``start`` waits for it.
            self._created.set()
        serve(instance)
        close_instance(instance, self._name)
