"""The host of this process, for functions that models call without an object of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ipc.errors import TritonModelException

if TYPE_CHECKING:
    from .host import Host

_host: Host | None = None


def start(host: Host) -> None:
    """Make a host the one of this process."""
    global _host
    _host = host


def stop() -> None:
    """Forget the host: a process that a model forked has no connection of its own."""
    global _host
    _host = None


def find() -> Host | None:
    """The host, None in a process that runs no model."""
    return _host


def running() -> Host:
    """The host.

    Raises:
        TritonModelException: this process is not one in which a server runs a model.
    """
    if _host is None:
        raise TritonModelException("This works only in a process in which the server runs a model")
    return _host
