"""The session that this process serves, for the functions that models call without naming it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ipc.errors import TritonModelException

if TYPE_CHECKING:
    from ..runtime.session import Session

_session: Session | None = None


def start(session: Session) -> None:
    """Make a session the one of this process."""
    global _session
    _session = session


def stop() -> None:
    """This process serves no session any more: it is the forked child of one that does."""
    global _session
    _session = None


def find() -> Session | None:
    """The session, None in a process that is no model's."""
    return _session


def running() -> Session:
    """The session.

    Raises:
        TritonModelException: this process is not one in which a server runs a model.
    """
    if _session is None:
        raise TritonModelException("This works only in a process in which the server runs a model")
    return _session
