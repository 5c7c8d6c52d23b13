"""A lock on a file, for things that several processes would otherwise build at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from naiad.errors import ModelLoadError

_POLL_S = 0.1


@contextlib.contextmanager
def locked(path: Path, wait_s: float) -> Iterator[int]:
    """Lock the file ``path``, which is made if need be; its descriptor.

    Args:
        wait_s: how long to wait for another process.

    Raises:
        ModelLoadError: another process has kept it locked for that long.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                # Without waiting in the call, which could not be ended after a time.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ModelLoadError(f"another process has kept {path} locked for {wait_s:g} s") from None
                time.sleep(_POLL_S)
        yield descriptor
    finally:
        # Unlocked by hand: a program that was started meanwhile may still have the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
