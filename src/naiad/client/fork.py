"""What a process keeps of its clients when it is forked."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """Something that two processes must not use both."""

    def forked(self, is_new_process: bool) -> None:
        """The process has been forked; called in both of them."""


_members: Final[WeakSet[ForkAware]] = WeakSet()


def watch_forks(member: ForkAware) -> None:
    """Tell ``member`` of forks as long as it lives."""
    _members.add(member)


def _forked(is_new_process: bool) -> None:
    for member in list(_members):
        member.forked(is_new_process)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked(True), after_in_parent=lambda: _forked(False))
