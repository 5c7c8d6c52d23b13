"""The shared-memory regions of one client: which requests use them, and how much memory they may take."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from naiad.bounded_dict import BoundedDict
from naiad.client.encode import InferOptions
from naiad.client.errors import ConnectionFailedError, ResponseError
from naiad.client.fork import watch_forks
from naiad.client.region import (
    LEAST_BYTES,
    PREFIX,
    ClientRegion,
    PlacedTensors,
    aligned,
    process_marks,
    process_marks_of,
)
from naiad.client.result import InferResult
from naiad.errors import NaiadError
from naiad.shared_memory.region import FOLDER

POOL_BYTES: Final = 1 << 29
_SMALLEST_BYTES: Final = 1 << 18
_MAX_REQUESTS: Final = 1024
_UNKNOWN: Final = "unable to find shared memory region"


class RegionPool:
    """The regions of a client. Any thread may use it.

    Args:
        is_required: a server that takes no regions is an error; otherwise all tensors are sent to it.
        limit_bytes: the most memory that the regions have, those that arrays look into included.
    """

    def __init__(self, is_required: bool, limit_bytes: int = POOL_BYTES) -> None:
        self._is_required = is_required
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._generation = 0
        self._is_off = self._is_closed = False
        self._idle: list[ClientRegion] = []
        # Appended to without the lock, as the garbage collector may run while it is held.
        self._returned: deque[ClientRegion] = deque()
        self._held_bytes = 0
        # The names of all regions that take part of the limit, and of those that the server has.
        self._owned: set[str] = set()
        self._names: set[str] = set()
        self._has_registered = False
        self._discarded: deque[str] = deque()
        # The outputs of requests whose inputs have the same shapes, and how often they have been seen so.
        self._outputs: dict[object, tuple[tuple[tuple[str, int], ...], int]] = BoundedDict(_MAX_REQUESTS)
        self._varying: set[tuple[str, str]] = set()
        watch_forks(self)

    # Which requests

    def placed(
        self, model: str, inputs: Mapping[str, Any], options: InferOptions, *, repeatable: bool
    ) -> PlacedTensors | None:
        """A place for the large tensors of a request; None where all are sent.

        Args:
            repeatable: whether the model may run the request twice, should an output be larger than its place.
        """
        if self._is_off or self._is_closed:
            return None
        size = sum(aligned(value.nbytes) for value in inputs.values() if _is_large(value))
        outputs = self._expected(model, inputs, options) if repeatable and self._outputs else {}
        size += sum(map(aligned, outputs.values()))
        region = self._take(size) if size else None
        return None if region is None else PlacedTensors(region, self, outputs)

    def _expected(self, model: str, inputs: Mapping[str, Any], options: InferOptions) -> dict[str, int]:
        found = self._outputs.get(_key(model, inputs, options))
        # Once is no rule: how large an output is may depend on more than the shapes of the inputs.
        if found is None or found[1] < 2 or (model, options.version) in self._varying:
            return {}
        return {name: size if size >= LEAST_BYTES else 0 for name, size in found[0]}

    def note(self, model: str, inputs: Mapping[str, Any], options: InferOptions, result: InferResult) -> None:
        """Note how large the outputs of a request are."""
        if self._is_off or not any(_is_large(array) for array in result.values()):
            return
        key = _key(model, inputs, options)
        sizes = tuple((name, array.nbytes if _is_large(array) else 0) for name, array in result.items())
        known, count = self._outputs.get(key, (sizes, 0))
        self._outputs[key] = (sizes, count + 1 if known == sizes else 1)

    def may_send(self, error: NaiadError, model: str, options: InferOptions, *, repeatable: bool) -> bool:
        """Whether a request that failed with a region may succeed without one, and may be sent again at once."""
        if isinstance(error, ConnectionFailedError):
            return repeatable or not error.was_sent
        text = str(error).lower()
        if not isinstance(error, ResponseError) or "shared memory" not in text:
            return False
        if _UNKNOWN in text:
            # Another server, or somebody has unregistered all.
            self._drop_idle()
            return True
        self._varying.add((model, options.version))
        return repeatable

    # Regions

    def _take(self, size: int) -> ClientRegion | None:
        with self._lock:
            self._sort_returned()
            fitting = [region for region in self._idle if region.byte_size >= size]
            if fitting:
                found = min(fitting, key=lambda region: region.byte_size)
                self._idle.remove(found)
                found.generation = self._generation
                return found
            size = _rounded(size)
            while self._idle and self._held_bytes + size > self._limit_bytes:
                self._drop(self._idle.pop(0))
            if self._held_bytes + size > self._limit_bytes or not _has_room(size):
                return None
            self._held_bytes += size
        try:
            found = ClientRegion(size)
        except OSError:
            # Others may have taken the room meanwhile.
            with self._lock:
                self._held_bytes -= size
            return None
        found.generation = self._generation
        with self._lock:
            # A server that does not respond in time may have it all the same.
            self._owned.add(found.name)
            self._names.add(found.name)
        return found

    def release(self, region: ClientRegion) -> None:
        """Nobody uses a region any more; may be called by the garbage collector."""
        if not self._is_closed:
            self._returned.append(region)

    def discard(self, region: ClientRegion) -> None:
        """Use a region no more: the server may still do."""
        with self._lock:
            self._drop(region)

    def _sort_returned(self) -> None:
        while self._returned:
            region = self._returned.popleft()
            # Arrays of another process may look into one of before a fork.
            if region.generation == self._generation and region.is_registered:
                self._idle.append(region)
            else:
                self._drop(region)

    def _drop(self, region: ClientRegion) -> None:
        if region.name not in self._owned:
            return
        self._owned.discard(region.name)
        self._held_bytes -= region.byte_size
        if region.name in self._names:
            self._discarded.append(region.name)

    def _drop_idle(self) -> None:
        with self._lock:
            self._sort_returned()
            idle, self._idle = self._idle, []
            for region in idle:
                self._drop(region)

    # What the server knows

    def registered(self, region: ClientRegion) -> bool:
        """Note that the server has a region; whether it is the first one."""
        region.is_registered = True
        with self._lock:
            is_first, self._has_registered = not self._has_registered, True
        return is_first

    def refused(self, placed: PlacedTensors, error: NaiadError) -> None:
        """Note that the server does not take a region.

        Raises:
            NaiadError: the error with advice, where regions are required.
        """
        is_final = isinstance(error, ResponseError) and not error.may_pass_later
        if is_final:
            self._names.discard(placed.region.name)
        self.discard(placed.region)
        if not is_final:
            return
        if self._is_required:
            advice = (
                f"shared_memory=True needs a server that sees the {FOLDER} of this machine, may open files of this "
                "user and takes regions; naiad serve does with --allow-client-shm=true"
            )
            raise ResponseError(getattr(error, "status", 400), f"{error}: {advice}") from error
        self._is_off = True

    def take_discarded(self) -> list[str]:
        """The names of regions to unregister, each once."""
        found = []
        while self._discarded:
            name = self._discarded.popleft()
            self._names.discard(name)
            found.append(name)
        return found

    @property
    def names(self) -> set[str]:
        """Of the regions that the server has; those in this set are unregistered when the client is no more."""
        return self._names

    def close(self) -> list[str]:
        """Use no regions any more; the names to unregister. Arrays that look into a region stay as they are."""
        with self._lock:
            self._is_closed = True
            names = list(self._names)
            for kept in (self._names, self._owned, self._idle, self._returned, self._discarded):
                kept.clear()
        return names

    def forked(self, is_new_process: bool) -> None:
        """Arrays of both processes may look into the regions that are in use: neither reuses them."""
        self._generation += 1
        if not is_new_process:
            for region in self._idle:
                region.generation = self._generation
            return
        self._lock = threading.Lock()
        self._idle, self._returned, self._discarded = [], deque(), deque()
        self._names.clear()
        self._owned.clear()
        self._held_bytes = 0


def left_behind(names: Iterable[str]) -> list[str]:
    """The names of regions whose clients are no more, of those that a server of this machine has."""
    try:
        namespace = process_marks().partition("-")[0]
    except OSError:
        return []
    return [name for name in names if _is_left_behind(name, namespace)]


def _is_left_behind(name: str, namespace: str) -> bool:
    parts = name.removeprefix(f"{PREFIX}-").split("-")
    if not name.startswith(f"{PREFIX}-") or len(parts) != 4 or parts[0] != namespace or not parts[1].isdecimal():
        return False
    try:
        return process_marks_of(int(parts[1])) != "-".join(parts[:3])
    except FileNotFoundError:
        return True
    except (OSError, IndexError):
        return False


def _is_large(value: Any) -> bool:
    if getattr(value, "nbytes", 0) < LEAST_BYTES:
        return False
    return getattr(getattr(value, "dtype", None), "kind", "f") not in "OSU"


def _key(model: str, inputs: Mapping[str, Any], options: InferOptions) -> object:
    shapes = tuple((name, tuple(getattr(value, "shape", ()))) for name, value in inputs.items())
    return model, options.version, options.outputs, shapes


def _rounded(size: int) -> int:
    """A size that similar requests have room in: with at most a quarter more."""
    step = max(_SMALLEST_BYTES, 1 << max(0, size.bit_length() - 3))
    return -(-size // step) * step


def _has_room(size: int) -> bool:
    """Whether the machine has twice the shared memory, so that other programs find some as well."""
    try:
        found = os.statvfs(FOLDER)
    except OSError:
        return False
    return hasattr(os, "posix_fallocate") and 2 * size <= found.f_bavail * found.f_frsize
