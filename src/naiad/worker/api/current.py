"""The session that this process serves, for the functions that models call without naming it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ipc.errors import TritonModelException

if TYPE_CHECKING:
    from .host import Host

_host: Host | None = None


def start(host: Host) -> None:
    """Make a session the one of this process."""
    global _host
    _host = host


def stop() -> None:
    """This process serves no session any more: it is the forked child of one that does."""
    global _host
    _host = None


def find() -> Host | None:
    """The session, None in a process that is no model's."""
    return _host


def running() -> Host:
    """The session.

    Raises:
        TritonModelException: this process is not one in which a server runs a model.
    """
    if _host is None:
        raise TritonModelException("This works only in a process in which the server runs a model")
    return _host
