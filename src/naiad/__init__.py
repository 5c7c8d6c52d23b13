"""Naiad: an inference server in Python that speaks the protocols and reads the model repositories of Triton.

The public names are imported when first used, so that ``import naiad`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from naiad.version import __version__

if TYPE_CHECKING:
    from naiad.errors import NaiadError as NaiadError
    from naiad.options import ServerOptions as ServerOptions

__all__ = ["NaiadError", "ServerOptions", "__version__"]

_HOMES = {"NaiadError": "naiad.errors", "ServerOptions": "naiad.options"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'naiad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
