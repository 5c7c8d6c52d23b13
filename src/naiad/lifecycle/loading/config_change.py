"""Another configuration for a model that serves, with the files that it was loaded from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from naiad.config.read import ReadConfig
from naiad.errors import UnavailableError
from naiad.lifecycle.state.candidate import Candidate
from naiad.lifecycle.state.model_table import ModelEntry

ConfigChange = Callable[[Any, Any], None]
"""Changes a configuration message, a copy of the one as written; the second argument is the completed one."""


def changeable(entry: ModelEntry | None, key: str) -> ModelEntry:
    """The entry of a model whose configuration can be changed while it serves.

    Raises:
        UnavailableError: it does not serve, or what it was loaded from cannot be found again.
    """
    ready = [] if entry is None else entry.ready()
    if entry is None or entry.read is None or entry.files is None or len(ready) != 1 or ready[0].folder:
        raise UnavailableError(
            f"the configuration of model '{key}' cannot be changed while it serves: that needs one version, loaded "
            "from a local repository without agents"
        )
    return entry


def changed(entry: ModelEntry, found: Candidate, change: ConfigChange) -> Candidate:
    """A candidate with the files of ``found`` and a configuration that was changed from what serves.

    Raises:
        UnavailableError: the files are not those that serve.
    """
    if entry.read is None or found.files != entry.files:
        raise UnavailableError(f"the files of model '{entry.name}' have changed since it was loaded")
    config = type(entry.read.config)()
    config.CopyFrom(entry.read.config)
    change(config, entry.ready()[0].config)
    return replace(found, read=ReadConfig(config, entry.read.origin))
