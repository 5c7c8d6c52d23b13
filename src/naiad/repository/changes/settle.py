"""Waiting until a model's files do not change any more. For threads: it reads folders, and sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError, UnavailableError
from naiad.repository.changes.contents import Look, look_at

if TYPE_CHECKING:
    from naiad.repository.catalog import Catalog

STILL_S: Final = 1.0
"""Seconds for which a model's files must not have changed."""
MAX_WAIT_S: Final = 60.0
"""The longest wait for that, in seconds."""


def wait_until_still(catalog: Catalog, name: str, check_wanted: Callable[[], None]) -> None:
    """Wait until a model on this machine is as it was a second ago; remote ones are never half copied.

    The ctime of the files decides. Copying tools set the mtime to that of the original; no program can set the ctime.

    Raises:
        UnavailableError: the files kept changing for a minute.
        NaiadError: a repository cannot be read, or ``check_wanted`` raised it.
    """
    deadline = time.monotonic() + MAX_WAIT_S
    while (left_s := _left(catalog, name)) > 0:
        check_wanted()
        if time.monotonic() + left_s > deadline:
            raise UnavailableError(
                f"the files of model '{name}' have been changing for {MAX_WAIT_S:g} s: it is loaded once they lie still"
            )
        time.sleep(left_s)


def _left(catalog: Catalog, name: str) -> float:
    """Seconds until a model has not changed for long enough, if nothing changes it meanwhile."""
    try:
        source = catalog.find(name)
    except ModelLoadError:
        # It is in a remote repository, or its load reports the problem.
        return 0.0
    look = look_at(source)
    newest = max((state[2] for state in look.files.values()), default=0) if isinstance(look, Look) else 0
    age_s = (time.time_ns() - newest) / 1e9
    # The clock of a file server may be ahead: a time in the future says nothing, and waiting for it could take hours.
    return STILL_S - age_s if 0 <= age_s < STILL_S else 0.0
