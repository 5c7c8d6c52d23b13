"""The generation of the table of models, which the engine's process writes and front ends read in shared memory.

A front end runs a model itself only while it knows the table as it is now. The engine increases the generation before
it answers the request that changed a model, so no later request is served by what was there before, whichever process
it comes to.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Final

_NUMBER: Final = struct.Struct("<Q")


class Generation:
    """The engine's side. Whoever makes it calls ``close``."""

    def __init__(self) -> None:
        self.number = 0
        self._descriptor = os.memfd_create("naiad-generation", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, mmap.PAGESIZE)
        self._page = mmap.mmap(self._descriptor, mmap.PAGESIZE)

    def advance(self) -> None:
        """From now on front ends do not trust the table that they know. Nothing happens after ``close``."""
        if self._descriptor < 0:
            return
        self.number += 1
        _NUMBER.pack_into(self._page, 0, self.number)

    def descriptor(self) -> int:
        """A descriptor of the page; the caller's to close."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        """Release the page. May be called twice."""
        if self._descriptor >= 0:
            self._page.close()
            os.close(self._descriptor)
            self._descriptor = -1


class GenerationPage:
    """A front end's side: the engine's page."""

    def __init__(self) -> None:
        self._page: mmap.mmap | None = None
        self._numbers: memoryview | None = None

    def open(self, descriptor: int) -> memoryview:
        """Map the page of ``descriptor``, which is closed here; the first number of it is always the present one."""
        self.close()
        try:
            self._page = mmap.mmap(descriptor, mmap.PAGESIZE, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        self._numbers = memoryview(self._page).cast("Q")
        return self._numbers

    def close(self) -> None:
        """Release the page; what ``open`` gave is void then. May be called twice."""
        if self._numbers is not None and self._page is not None:
            self._numbers.release()
            self._page.close()
            self._numbers = self._page = None
