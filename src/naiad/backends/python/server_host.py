"""The host of the Python models that run in threads of the server: what ``pb_utils`` reaches without a worker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from naiad.execution.worker.process import log_line
from naiad.worker.api import current, pb_utils
from naiad.worker.ipc.errors import TritonModelException

if TYPE_CHECKING:
    import asyncio

    from naiad.worker.api.host import Host
    from naiad.worker.ipc.reader import Channel

_NAMES: Final = ("triton_python_backend_utils", "c_python_backend_utils")
"""The reference's names of the models' interface."""


class ServerHost:
    """All models in threads have this one host; which of them calls, it knows by the thread.

    What a worker does over its connection to the server is refused: other models, response senders, metrics of the
    model's own.
    """

    is_decoupled = False

    def __init__(self) -> None:
        self._local = threading.local()

    def enter(self, instance: str, model_directory: str) -> None:
        """The calling thread runs this instance from now on."""
        self._local.instance, self._local.model_directory = instance, model_directory

    @property
    def model_directory(self) -> str:
        """The folder of the version whose thread calls.

        Raises:
            TritonModelException: it is no thread of an instance.
        """
        found: str | None = getattr(self._local, "model_directory", None)
        if found is None:
            raise TritonModelException(
                "get_model_dir() works only in the thread of the instance, in a model with execution=thread"
            )
        return found

    @property
    def channel(self) -> Channel:
        """There is none."""
        _refuse("messages to the server")

    def log(self, level: str, message: str, file: str = "", line: int = 0, once: str = "") -> None:
        """Write a line into the server's log."""
        content = {"level": level, "message": message, "file": file, "line": line}
        log_line(getattr(self._local, "instance", "a Python model"), content)

    def is_cancelled(self, number: int) -> bool:
        """Always False: what runs in a thread does not hear of its caller."""
        return False

    def abandoned(self, number: int, has_responded: bool) -> None:
        """Nothing to note: ``execute`` returns the response."""

    def respond(self, number: int, response: object, wanted: object, final: bool, parts: object = None) -> None:
        """Refused: responses are what ``execute`` returns."""
        _refuse("response senders")

    def start_call(self, head: object, tensors: object, options: object, deliver: Callable[[Any, bool], object]) -> int:
        """Refused: other models are called over the connection of a worker."""
        _refuse("calls of other models")

    def cancel_call(self, number: int) -> None:
        """There are no calls."""

    def send_request(self, content: Mapping[str, Any]) -> Any:
        """Refused: loads, and metrics of the model's own."""
        _refuse(f"'{content.get('what', '')}'")

    def notify(self, content: Mapping[str, Any]) -> None:
        """Nothing to say: what notifications are about was refused before."""

    def read_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is no connection."""

    def stop_reading_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """There is no connection."""


def _refuse(what: str) -> NoReturn:
    raise TritonModelException(
        f"{what}: not in a model with execution=thread, which runs in the server itself; leave the parameter "
        "'execution' out, and the model has a process of its own"
    )


HOST: Final = ServerHost()


def provide_interface() -> Host:
    """Make the models' interface importable in the server; its host."""
    host = cast("Host", HOST)
    for name in _NAMES:
        sys.modules.setdefault(name, pb_utils)
    current.start(host)
    return host
