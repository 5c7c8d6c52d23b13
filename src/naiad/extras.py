"""How to install the optional dependencies of ``pyproject.toml``."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """The commands that install the packages of ``extra``, for a text that ends in "run: "."""
    return f"pip install 'naiad[{extra}]', or pip install '.[{extra}]' in a checkout of Naiad"
