"""What the instances need of a GPU: a stream, memory on both sides, and captured runs, over the package ``cuda``.

Source: the CUDA runtime API. Everything belongs to the thread that made it, whose current GPU is set once.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from naiad.errors import BackendError
from naiad.gpus.pinned import POOL

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_NON_BLOCKING: Final = 1
_EVENT_BLOCKS: Final = 1
_EVENT_WITHOUT_TIME: Final = 2


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the CUDA runtime; its value, or a tuple of several.

    Raises:
        BackendError: it failed; the text is CUDA's own.
    """
    from cuda.bindings import runtime

    code, *values = getattr(runtime, name)(*arguments)
    if int(code):
        _, text = runtime.cudaGetErrorString(code)
        words = text.decode("ascii", "replace") if isinstance(text, bytes) else str(text)
        raise BackendError(f"tensorrt: {name}: {words}")
    return values[0] if len(values) == 1 else tuple(values)


class GpuStream:
    """A queue of work on one GPU, in the order in which it was given.

    Args:
        device: the number of the GPU, which becomes that of the calling thread.
        priority: as ``PlanSettings``.
        busy_waits: as ``PlanSettings``.
    """

    def __init__(self, device: int, priority: str, busy_waits: bool) -> None:
        call("cudaSetDevice", device)
        least, greatest = call("cudaDeviceGetStreamPriorityRange")
        level = {"PRIORITY_MAX": greatest, "PRIORITY_MIN": least}.get(priority, 0)
        self._stream = call("cudaStreamCreateWithPriority", _NON_BLOCKING, level)
        flags = _EVENT_WITHOUT_TIME if busy_waits else _EVENT_WITHOUT_TIME | _EVENT_BLOCKS
        self._event = call("cudaEventCreateWithFlags", flags)
        self.handle = int(self._stream)

    def to_device(self, target: DeviceMemory, source: HostMemory, size: int) -> None:
        """Copy the first ``size`` bytes when the stream gets there."""
        from cuda.bindings import runtime

        kind = runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        call("cudaMemcpyAsync", target.address, source.address, size, kind, self._stream)

    def to_host(self, target: HostMemory, source: int, size: int) -> None:
        """Copy ``size`` bytes from an address of the GPU when the stream gets there."""
        from cuda.bindings import runtime

        kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        call("cudaMemcpyAsync", target.address, source, size, kind, self._stream)

    def wait(self) -> None:
        """Wait until all work is done. Other Python threads run meanwhile."""
        call("cudaEventRecord", self._event, self._stream)
        call("cudaEventSynchronize", self._event)

    def begin_capture(self) -> None:
        """Note what follows instead of doing it."""
        from cuda.bindings import runtime

        mode = runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        call("cudaStreamBeginCapture", self._stream, mode)

    def end_capture(self) -> CapturedRun:
        """What was noted, ready to run."""
        graph = call("cudaStreamEndCapture", self._stream)
        try:
            return CapturedRun(call("cudaGraphInstantiate", graph, 0), self._stream)
        finally:
            call("cudaGraphDestroy", graph)

    def drop_capture(self) -> None:
        """Leave a capture that failed; the work that was noted is gone."""
        from cuda.bindings import runtime

        code, graph = runtime.cudaStreamEndCapture(self._stream)
        if not int(code) and graph:
            call("cudaGraphDestroy", graph)

    def close(self) -> None:
        """Release the stream."""
        call("cudaEventDestroy", self._event)
        call("cudaStreamDestroy", self._stream)


class CapturedRun:
    """A CUDA graph: the copies and kernels of one run, which one call starts."""

    def __init__(self, executable: Any, stream: Any) -> None:
        self._executable = executable
        self._stream = stream

    def launch(self) -> None:
        """Start it."""
        call("cudaGraphLaunch", self._executable, self._stream)

    def close(self) -> None:
        """Release it."""
        call("cudaGraphExecDestroy", self._executable)


class DeviceMemory:
    """Memory of the current GPU."""

    def __init__(self, size: int) -> None:
        # An address is needed even for a tensor without elements.
        self.size = max(1, size)
        self.address = int(call("cudaMalloc", self.size))

    def close(self) -> None:
        """Release it, once."""
        address, self.address = self.address, 0
        if address:
            call("cudaFree", address)


class HostMemory:
    """Memory that is copied to or from a GPU: pinned where the pool has room for it, else ordinary.

    Attributes:
        bytes: its content.
        is_pinned: whether it may be copied while the processor does something else.
    """

    def __init__(self, size: int, limit: int, pins: bool) -> None:
        self.size = max(1, size)
        self.is_pinned = pins and POOL.take(self.size, limit)
        self.bytes: Bytes
        if self.is_pinned:
            try:
                self.address = int(call("cudaHostAlloc", self.size, 0))
            except BackendError:
                POOL.release(self.size)
                raise
            memory = (ctypes.c_uint8 * self.size).from_address(self.address)
            self.bytes = np.frombuffer(memoryview(memory), np.uint8)
        else:
            self.bytes = np.empty(self.size, np.uint8)
            self.address = self.bytes.ctypes.data

    def close(self) -> None:
        """Release it."""
        if self.is_pinned:
            self.is_pinned = False
            self.bytes = np.empty(0, np.uint8)
            call("cudaFreeHost", self.address)
            POOL.release(self.size)
