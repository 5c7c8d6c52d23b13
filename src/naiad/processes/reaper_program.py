"""Started by the server, as ``python reaper_program.py DESCRIPTOR``: kills process groups that outlive the server.

The descriptor is the end of a pipe. Lines ``+GROUP`` and ``-GROUP`` say which groups run. When the pipe is closed, the
server is gone, and groups get a moment for their last steps. Only the standard library is used.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 4.0
"""A little more than processes of models may take for their last steps when the server is gone."""
_PAUSE_S = 0.05


def main() -> None:
    """Watch in a process that is no child of the server."""
    if os.fork():
        os._exit(0)
    # Whoever stops the server may signal all that belongs to it. This process ends after the server.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _end(_groups_at_the_end(int(sys.argv[1])))


def _groups_at_the_end(pipe: int) -> set[int]:
    groups: set[int] = set()
    rest = b""
    while data := os.read(pipe, 1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            change = groups.add if line.startswith(b"+") else groups.discard
            change(int(line[1:]))
    return groups


def _end(groups: set[int]) -> None:
    deadline = time.monotonic() + GRACE_S
    # A number is looked at until its group is gone, and never again: another group may get it.
    while (groups := {group for group in groups if _signal(group, 0)}) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    for group in groups:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Whether there is such a group of this user."""
    try:
        os.killpg(group, number)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
