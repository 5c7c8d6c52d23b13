"""How to install what Naiad can use and does not bring: the optional dependencies of ``pyproject.toml``."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The commands that install the packages of ``extra``, as they stand behind "run: "."""
    return f"pip install 'naiad[{extra}]', or pip install '.[{extra}]' in a checkout of Naiad"
