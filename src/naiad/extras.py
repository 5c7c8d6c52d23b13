"""How to install the optional dependencies of ``pyproject.toml``."""

from __future__ import annotations


class MissingPackageError(ImportError):
    """A package is there and cannot be imported, since another one is missing.

    Args:
        reason: what the import says.
        command: the command that installs the missing package.
    """

    def __init__(self, reason: str, command: str) -> None:
        super().__init__(reason)
        self.command = command


def how_to_install(extra: str) -> str:
    """The commands that install the packages of ``extra``, for a text that ends in "run: "."""
    return f"pip install 'naiad[{extra}]', or pip install '.[{extra}]' in a checkout of Naiad"
