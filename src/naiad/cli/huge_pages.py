"""Large memory in huge pages: the C library takes them for large blocks when the process is told so at its beginning.

Where a page has 4 KiB, the weights of a model of 1 GB are a quarter of a million pages. To get each takes the processor
from the requests, and frameworks give all of them back in one go while they hold Python's lock. With pages of 2 MiB a
load is several times faster, and the end of a model takes milliseconds (figures: docs/where-models-run.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

TUNABLES: Final = "GLIBC_TUNABLES"
"""The environment variable that the C library reads when a process begins."""
HUGE: Final = "glibc.malloc.hugetlb"
_SINCE: Final = (2, 35)
_SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def begin_with_huge_pages() -> None:
    """Begin this process anew, under its own number, where it can have huge pages and was not told about them yet."""
    environ = dict(os.environ)
    if not sys.executable or not can_have(environ, _library(), _setting()):
        return
    told = environ.get(TUNABLES)
    environ[TUNABLES] = f"{HUGE}=1:{told}" if told else f"{HUGE}=1"
    with suppress(OSError):
        # Where it cannot begin anew it goes on as it is.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def can_have(environ: Mapping[str, str], library: str, setting: str) -> bool:
    """Whether telling the C library makes a difference, and nobody has told it anything about it.

    Args:
        environ: of the process.
        library: the C library's name and version, such as "glibc 2.36".
        setting: the system's, such as "always [madvise] never".
    """
    name, _, version = library.partition(" ")
    if name != "glibc" or "[madvise]" not in setting or HUGE in environ.get(TUNABLES, ""):
        return False
    numbers = version.split(".")[:2]
    return all(map(str.isdecimal, numbers)) and tuple(map(int, numbers)) >= _SINCE


def _library() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError, AttributeError):
        return ""


def _setting() -> str:
    try:
        return _SETTING.read_text()
    except OSError:
        return ""
