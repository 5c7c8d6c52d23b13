"""The effect of a caller that sends very many strings on the tail of another caller's small requests."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from .. import models
from ..figures import Figure
from ..infer import Request, binary_request, with_header
from ..settings import Settings
from .json_beside import DIMS, LARGE_MIB, beside
from .mlp import input_row

LENGTHS = 21


def bytes_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of small requests alone, and while another caller sends 60 MiB of short strings one after another."""
    repository = settings.work / "bytes-beside"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    models.add_identity(repository, "strings", DIMS, max_batch_size=0, datatype="TYPE_STRING")
    small = binary_request("identity", {"INPUT0": input_row()}, "OUTPUT0")
    large = large_request((2 if settings.quick else LARGE_MIB) << 20)
    note = f"{len(large.body) >> 20} MiB of strings of 0 to {LENGTHS - 1} bytes"
    yield from beside(settings, repository, small, large, "bytes_beside", note)


def large_request(size: int) -> Request:
    """A request of about so many bytes of strings, whose lengths differ; the answer has them as well."""
    some = b"".join(struct.pack("<I", length) + b"x" * length for length in range(LENGTHS))
    times = size // len(some)
    given = {
        "name": "INPUT0",
        "datatype": "BYTES",
        "shape": [LENGTHS * times],
        "parameters": {"binary_data_size": len(some) * times},
    }
    wanted = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    return with_header("strings", {"inputs": [given], "outputs": [wanted]}, some * times)
