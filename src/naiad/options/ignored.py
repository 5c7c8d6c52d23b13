"""The kinds of the reference's options about GPUs, most of which have no effect here.

Their values are checked nevertheless, so that a command line that works here works there. Source of the syntax: the
reference's ``command_line_parser.cc``.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.options.kinds import INT64_MAX, Kind, integer

_FRACTION: Final = re.compile(r"0*1(?:\.0*)?|0*(?:\.[0-9]+)?|0+\.")
_CAPABILITY: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?")


def _read_capability(text: str) -> str:
    if _CAPABILITY.fullmatch(text) is None:
        raise ValueError(f"Invalid option value. Got {text}")
    return text


def _read_bytes_of_gpu(text: str) -> str:
    gpu, _, size = text.partition(":")
    integer(0).read(gpu)
    integer(0, INT64_MAX).read(size)
    return text


def _read_share_of_gpu(text: str) -> str:
    gpu, _, share = text.partition(":")
    integer(0).read(gpu)
    if not share or _FRACTION.fullmatch(share) is None:
        raise ValueError(f"expected a fraction from 0 to 1 of the GPU's memory. Got {share}")
    return text


BYTES_OF_GPU: Final = Kind("<gpu>:<bytes>", "the number of a GPU and bytes, such as 0:1073741824", _read_bytes_of_gpu)
SHARE_OF_GPU: Final = Kind("<gpu>:<fraction>", "the number of a GPU and a fraction, such as 0:0.8", _read_share_of_gpu)
COMPUTE_CAPABILITY: Final = Kind("<number>", "a compute capability, such as 7.5", _read_capability)
