"""Naiad: an inference server in Python that speaks the protocols and reads the model repositories of Triton.

The public names are imported when first used, so that ``import naiad`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from naiad.version import __version__

if TYPE_CHECKING:
    from naiad.binding.batching import batch as batch
    from naiad.binding.tensor_types import BF16 as BF16
    from naiad.binding.tensor_types import BOOL as BOOL
    from naiad.binding.tensor_types import BYTES as BYTES
    from naiad.binding.tensor_types import FP16 as FP16
    from naiad.binding.tensor_types import FP32 as FP32
    from naiad.binding.tensor_types import FP64 as FP64
    from naiad.binding.tensor_types import INT8 as INT8
    from naiad.binding.tensor_types import INT16 as INT16
    from naiad.binding.tensor_types import INT32 as INT32
    from naiad.binding.tensor_types import INT64 as INT64
    from naiad.binding.tensor_types import UINT8 as UINT8
    from naiad.binding.tensor_types import UINT16 as UINT16
    from naiad.binding.tensor_types import UINT32 as UINT32
    from naiad.binding.tensor_types import UINT64 as UINT64
    from naiad.binding.tensor_types import TensorType as TensorType
    from naiad.errors import NaiadError as NaiadError
    from naiad.inprocess.server import Server as Server
    from naiad.options import ServerOptions as ServerOptions

_HOMES = {
    "naiad.binding.batching": ("batch",),
    "naiad.binding.tensor_types": (
        *("BF16", "BOOL", "BYTES", "FP16", "FP32", "FP64", "INT16", "INT32", "INT64", "INT8"),
        *("TensorType", "UINT16", "UINT32", "UINT64", "UINT8"),
    ),
    "naiad.errors": ("NaiadError",),
    "naiad.inprocess.server": ("Server",),
    "naiad.options": ("ServerOptions",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BF16",
    "BOOL",
    "BYTES",
    "FP16",
    "FP32",
    "FP64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "NaiadError",
    "Server",
    "ServerOptions",
    "TensorType",
    "__version__",
    "batch",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'naiad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
