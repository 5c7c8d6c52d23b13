"""A quota for the configurations and files that load requests bring, which are in memory until the load is over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from naiad.errors import UnavailableError

MAX_CONTENT: Final = 1 << 30
"""Bytes that running and queued loads may bring together; a single load may bring more."""


class UploadQuota:
    """Counts the bytes. Used on the event loop only."""

    def __init__(self) -> None:
        self._bytes = 0

    @contextmanager
    def holding(self, name: str, size: int) -> Iterator[None]:
        """Count ``size`` bytes for a load of the model ``name`` until it is over.

        Raises:
            UnavailableError: other loads hold too many.
        """
        if size and self._bytes and self._bytes + size > MAX_CONTENT:
            raise UnavailableError(
                f"loads that run or wait hold {self._bytes} uploaded bytes: load model '{name}' "
                "again when some of them have ended"
            )
        self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
