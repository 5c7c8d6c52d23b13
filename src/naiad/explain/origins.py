"""Where the value of each field of a completed configuration comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from naiad.config.normalize import normalize

if TYPE_CHECKING:
    from naiad.config.read import ReadConfig

DEFAULT: Final = "default"
COMPLETED: Final = "auto-completed"
FROM_FILES: Final = "the model's files"
SERVER: Final = "the server"
LOAD_REQUEST: Final = "the load request"
"""Instead of the name of a file, for a configuration that came with the request to load the model."""
_OF_FILES: Final = ("name", "platform", "backend", "default_model_filename")
_DECISIVE: Final = ("name", "platform", "backend", "max_batch_size")

FindOrigin = Callable[[str, bool], str]
"""Names the origin of the value at a path such as ``input[0].dims``; the flag says that it is the default."""


def of_file(read: ReadConfig) -> FindOrigin:
    """Origins in a configuration that was completed from ``read``: file and line, the model's files, the backend."""

    def find(path: str, is_default: bool) -> str:
        line = read.origin.lines.get(path)
        if line is not None:
            return f"{LOAD_REQUEST if read.origin.file is None else read.origin.file.name}:{line}"
        if path == "name" or (path in _OF_FILES and not is_default):
            return FROM_FILES
        return DEFAULT if is_default else COMPLETED

    return find


def of_server(path: str, is_default: bool) -> str:
    """Origins in a configuration that a server shows which does not say who wrote a value, as those of others do."""
    return DEFAULT if is_default else SERVER


def baseline(written: Any, completed: Any) -> Any:
    """``written`` with all defaults filled in, for the backend that ``completed`` names.

    A value of ``completed`` that differs from it, and was not written, was completed from the model.
    """
    found = type(completed)()
    found.CopyFrom(written)
    # Defaults of other fields follow from these.
    for name in _DECISIVE:
        setattr(found, name, getattr(completed, name))
    normalize(found)
    for name in _DECISIVE:
        if not getattr(written, name):
            found.ClearField(name)
    return found
