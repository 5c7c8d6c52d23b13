"""Shared memory of a client, for tests: made and looked at with tritonclient, named and freed by the test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import shared_memory

from naiad.testing import RunningServer

PROTOCOLS = {"http": tritonclient.http, "grpc": tritonclient.grpc}


@dataclass(slots=True)
class Memory:
    """A POSIX shared memory object. ``key`` is its name with the slash in front."""

    key: str
    size: int
    handle: Any

    def put(self, array: np.ndarray, offset: int = 0) -> None:
        """Write an array."""
        shared_memory.set_shared_memory_region(self.handle, [array], offset)

    def get(self, dtype: Any, shape: list[int], offset: int = 0) -> np.ndarray:
        """Read an array, as a copy."""
        found: np.ndarray = shared_memory.get_contents_as_numpy(self.handle, dtype, shape, offset).copy()
        return found

    @property
    def path(self) -> str:
        """The file it is."""
        return f"/dev/shm{self.key}"


@contextmanager
def memory(size: int) -> Iterator[Memory]:
    """A new shared memory object."""
    key = f"/naiad-test-{uuid.uuid4().hex}"
    handle = shared_memory.create_shared_memory_region(key, key, size)
    try:
        yield Memory(key, size, handle)
    finally:
        if os.path.exists(f"/dev/shm{key}"):
            shared_memory.destroy_shared_memory_region(handle)


class Caller:
    """A client of a server, over one protocol."""

    def __init__(self, server: RunningServer, protocol: str) -> None:
        self.library: Any = PROTOCOLS[protocol]
        url = server.url if protocol == "http" else server.grpc_url
        self.client: Any = self.library.InferenceServerClient(url)

    def register(self, name: str, given: Memory, offset: int = 0, size: int | None = None) -> None:
        """Register memory, all of it unless ``size`` says less."""
        self.client.register_system_shared_memory(name, given.key, given.size if size is None else size, offset)

    def input(self, name: str, wire: str, shape: list[int], region: str, size: int, offset: int = 0) -> Any:
        """An input that lies in a region."""
        given = self.library.InferInput(name, shape, wire)
        given.set_shared_memory(region, size, offset)
        return given

    def output(self, name: str, region: str, size: int, offset: int = 0) -> Any:
        """An output that is wanted in a region."""
        wanted = self.library.InferRequestedOutput(name)
        wanted.set_shared_memory(region, size, offset)
        return wanted


@contextmanager
def calling(server: RunningServer, protocol: str) -> Iterator[Caller]:
    """A client whose regions are all unregistered in the end."""
    made = Caller(server, protocol)
    yield made
    made.client.unregister_system_shared_memory()
    assert made.client.get_system_shared_memory_status() is not None
    made.client.close()


def descriptors(process: int) -> list[str]:
    """What a process has open under /dev/shm."""
    found = []
    for entry in os.listdir(f"/proc/{process}/fd"):
        try:
            target = os.readlink(f"/proc/{process}/fd/{entry}")
        except OSError:
            continue
        if target.startswith("/dev/shm/naiad-test-"):
            found.append(target)
    return found
