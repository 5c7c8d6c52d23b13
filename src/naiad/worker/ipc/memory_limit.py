"""How much memory the process of a model may use."""

from __future__ import annotations

MEGABYTE = 1 << 20


class MemoryLimit:
    """The limit of this process. ``bytes`` is 0 for none."""

    def __init__(self) -> None:
        self.bytes = 0

    def apply(self, size: int) -> None:
        """Limit this process, and the processes that it starts, to ``size`` bytes of private memory; 0 for no limit.

        Private memory is what the system counts for RLIMIT_DATA: all that can be written to, also where it was only
        reserved. Memory that is shared with the server does not count.

        Raises:
            MemoryError: that much is in use before the model is loaded.
        """
        if not size:
            return
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        allowed = size if hard == resource.RLIM_INFINITY else min(size, hard)
        # The hard limit as well: a model cannot raise it again.
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
        self.bytes = size
        used = memory_in_use()
        if used >= size:
            raise MemoryError(f"{-(-used // MEGABYTE)} MB are in use before the model is loaded")

    def hint(self, error: BaseException) -> str:
        """What to add to the text of an error that comes from the limit, "" for any other."""
        if not self.bytes or not isinstance(error, MemoryError):
            return ""
        return f" (memory-limit-mb is {self.bytes // MEGABYTE})"


memory_limit = MemoryLimit()
"""The limit of this process."""


def memory_in_use() -> int:
    """The bytes that count, 0 where the system does not tell."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmData:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
