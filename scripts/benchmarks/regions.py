"""System shared memory for requests that repeat: one region with the input, and one that every answer is written to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from .figures import CaseError
from .infer import Array, Request, ask
from .perf_analyzer import Question
from .servers import HTTP, Server

INPUT_REGION = "bench_input"
OUTPUT_REGION = "bench_output"
FOLDER = Path("/dev/shm")
ELEMENT_BYTES = 4


def path_of(region: str) -> Path:
    """Where the memory of a region lies; no two runs have the same."""
    return FOLDER / f"naiad-{region}-{os.getpid()}"


@contextlib.contextmanager
def regions_for(question: Question, servers: Iterable[Server], values: Array | None = None) -> Iterator[None]:
    """The regions that ``question`` names, registered with all ``servers`` and in the end with none; nothing for a
    question that names none. The input holds ``values``.

    Raises:
        CaseError: a server does not take one.
    """
    if not question.in_regions:
        yield
        return
    size = ELEMENT_BYTES * question.values
    with contextlib.ExitStack() as stack:
        for region in (INPUT_REGION, OUTPUT_REGION):
            path_of(region).write_bytes(bytes(size))
            stack.callback(path_of(region).unlink)
        if values is not None:
            path_of(INPUT_REGION).write_bytes(values.astype(np.float32).tobytes())
        for server in servers:
            for region in (INPUT_REGION, OUTPUT_REGION):
                content = {"key": f"/{path_of(region).name}", "offset": 0, "byte_size": size}
                _tell(server, region, "register", content)
                stack.callback(_tell, server, region, "unregister", {})
        yield


def parameters(region: str, size: int) -> dict[str, str | int]:
    """What a request says of a tensor of so many bytes in a region."""
    return {"shared_memory_region": region, "shared_memory_byte_size": size}


def forget_answer() -> None:
    """Fill the region of answers with zeros."""
    with path_of(OUTPUT_REGION).open("r+b") as file:
        file.write(bytes(path_of(OUTPUT_REGION).stat().st_size))


def check_region(expected: Array, what: str) -> None:
    """Look at the answer in its region.

    Raises:
        CaseError: it is not the expected one.
    """
    found = np.fromfile(path_of(OUTPUT_REGION), np.float32).reshape(expected.shape)
    if not np.allclose(found, expected, rtol=1e-3, atol=1e-4):
        raise CaseError(f"{what} wrote a wrong answer to its region: {found.ravel()[:4]}...")


def _tell(server: Server, region: str, action: str, content: dict[str, object]) -> None:
    request = Request(f"/v2/systemsharedmemory/region/{region}/{action}", {}, json.dumps(content).encode())
    status, _, body = ask(server.at(HTTP).port, request)
    if status != 200:
        raise CaseError(f"{server.name} answered {status} to '{action}' of a region: {body[:500]!r}")
