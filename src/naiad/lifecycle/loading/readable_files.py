"""A check that the server's user may read the model files, before a framework reports something less clear."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from naiad.errors import ModelLoadError


def check_readable(model: str, path: Path) -> None:
    """Try to open a model file, or the files in a model's folder. The backend reports files that are missing.

    Raises:
        ModelLoadError: one cannot be read; the text says which, as which user, and what keeps it.
    """
    file = path
    try:
        for file in _files(path):
            os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(model, file, error) from error


def unreadable(model: str, path: Path, error: OSError) -> ModelLoadError:
    """The error for a file that cannot be read for the reason ``error``."""
    text = f"model '{model}': '{path}' cannot be read as user {_user()}: {error.strerror or error}"
    if not isinstance(error, PermissionError):
        return ModelLoadError(text)
    # From the root on: nothing below the first closed folder can be looked at.
    closed = next((folder for folder in reversed(path.parents) if not _may_enter(folder)), None)
    if closed is not None:
        return ModelLoadError(f"{text}; the folder '{closed}' keeps that user out, allow it: chmod a+rx '{closed}'")
    rights = "a+rx" if path.is_dir() else "a+r"
    return ModelLoadError(f"{text}; allow it: chmod {rights} '{path}'")


def _files(path: Path) -> Iterator[Path]:
    """The files to open; no pipes, which would block."""
    if not path.is_dir():
        path.stat()
        if path.is_file():
            yield path
        return
    with os.scandir(path) as entries:
        yield from (Path(entry.path) for entry in entries if entry.is_file())


def _may_enter(folder: Path) -> bool:
    # Files are opened as the effective user; ``os.access`` asks about the real one by default.
    effective = os.access in os.supports_effective_ids
    return os.access(folder, os.X_OK, effective_ids=effective)


def _user() -> str:
    number = os.geteuid()
    try:
        import pwd

        return f"'{pwd.getpwuid(number).pw_name}' (uid {number})"
    except (ImportError, KeyError):
        # Containers often run as a number without a name.
        return f"with uid {number}"
