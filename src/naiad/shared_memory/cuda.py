"""Regions in the memory of NVIDIA devices, through the driver's library, which every working device comes with.

Source: the driver API's sections on memory management and on unified addressing; ``cudaIpcMemHandle_t`` of the runtime
and ``CUipcMemHandle`` of the driver are the same 64 bytes. Calls may block: never on the event loop.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from naiad.errors import InvalidArgumentError, UnavailableError
from naiad.gpus.driver import DriverLibrary

HANDLE_BYTES: Final = 64
_LAZY_ENABLE_PEER_ACCESS: Final = 1


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class Driver:
    """The driver's library.

    Raises:
        OSError: there is no library, or no working device.
    """

    def __init__(self) -> None:
        self._library = DriverLibrary()
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        self.devices = self._library.count()
        # A simple queue may be put to in ``__del__``, even while the same thread is inside a put.
        self.closing: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._closer = threading.Thread(target=self._close_all, name="naiad-cuda-close", daemon=True)
        self._closer.start()

    def open(self, device: int, handle: bytes) -> int:
        """Open an allocation of another process; returns its address."""
        self._use(device)
        address = ctypes.c_uint64()
        given = _Handle()
        ctypes.memmove(ctypes.byref(given), handle, HANDLE_BYTES)
        self._library.call(
            "cuIpcOpenMemHandle_v2", ctypes.byref(address), given, ctypes.c_uint(_LAZY_ENABLE_PEER_ACCESS)
        )
        return address.value

    def allocate(self, device: int, size: int) -> int:
        """Allocate memory of this process on a device; returns its address."""
        self._use(device)
        address = ctypes.c_uint64()
        self._library.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def export(self, device: int, address: int) -> bytes:
        """The handle by which other processes open an allocation of this one."""
        self._use(device)
        handle = _Handle()
        self._library.call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)

    def free(self, device: int, address: int) -> None:
        """Free an allocation of this process."""
        self._use(device)
        self._library.call("cuMemFree_v2", ctypes.c_uint64(address))

    def size(self, device: int, address: int) -> int:
        """The bytes of the allocation at an address."""
        self._use(device)
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._library.call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        # The address may lie inside its allocation.
        return size.value - (address - base.value)

    def close(self, device: int, address: int) -> None:
        """Close an allocation of another process."""
        self._use(device)
        self._library.call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def read(self, device: int, address: int, target: memoryview) -> None:
        """Copy from the device."""
        self._use(device)
        memory = (ctypes.c_char * len(target)).from_buffer(target)
        self._library.call(
            "cuMemcpyDtoH_v2", ctypes.byref(memory), ctypes.c_uint64(address), ctypes.c_size_t(len(target))
        )

    def write(self, device: int, address: int, data: bytes) -> None:
        """Copy to the device."""
        self._use(device)
        self._library.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_char_p(data), ctypes.c_size_t(len(data))
        )

    def stop(self) -> None:
        """End the thread that closes allocations."""
        self.closing.put(None)

    def _use(self, device: int) -> None:
        """Set the device of the calling thread."""
        # Under a lock, since regions are used in several threads: a context is retained once for each device.
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                number = ctypes.c_int()
                self._library.call("cuDeviceGet", ctypes.byref(number), ctypes.c_int(device))
                context = ctypes.c_void_p()
                self._library.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
                self._contexts[device] = context
        # The current context belongs to the calling thread, so it is set before each call.
        self._library.call("cuCtxSetCurrent", context)

    def _close_all(self) -> None:
        while (close := self.closing.get()) is not None:
            try:
                close()
            except OSError:
                continue  # The device, or the allocation, is gone.


_driver: Driver | None = None
_driver_lock = threading.Lock()


def driver() -> Driver:
    """The driver's library, loaded at the first call.

    Raises:
        OSError: there is no library, or no working device.
    """
    global _driver
    with _driver_lock:
        if _driver is None:
            _driver = Driver()
        return _driver


def stop_driver() -> None:
    """End the driver that the first region started."""
    global _driver
    with _driver_lock:
        if _driver is not None:
            _driver.stop()
            _driver = None


def check_handle(handle: bytes) -> bytes:
    """Check the handle of a client and return it.

    Raises:
        InvalidArgumentError: its size is not ``HANDLE_BYTES``.
    """
    if len(handle) != HANDLE_BYTES:
        raise InvalidArgumentError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t")
    return handle


class CudaRegion:
    """An allocation of a client on a device. Made in a thread, since the device may block.

    Args:
        name: as registered.
        handle: the ``cudaIpcMemHandle_t``.
        device_id: the device.
        byte_size: of the region, which begins where the allocation does.

    Raises:
        InvalidArgumentError: there is no such device, the handle is not one of its allocations, or the allocation is
            smaller.
    """

    __slots__ = ("__weakref__", "_address", "_driver", "byte_size", "device_id", "name")
    descriptor: Final = -1
    start: Final = 0

    def __init__(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        self.name = name
        self.device_id = device_id
        self.byte_size = byte_size
        # Set before anything can fail: ``__del__`` also runs for a region that was never opened.
        self._address = 0
        failed = f"failed to register CUDA shared memory region: '{name}'"
        try:
            self._driver = driver()
        except OSError:
            raise InvalidArgumentError(f"{failed}, GPUs not supported") from None
        if not 0 <= device_id < self._driver.devices:
            raise InvalidArgumentError(f"{failed}: there is no device {device_id}, only {self._driver.devices} devices")
        try:
            self._address = self._driver.open(device_id, check_handle(handle))
            found = self._driver.size(device_id, self._address)
        except OSError as error:
            raise InvalidArgumentError(f"{failed}: {error.strerror}") from None
        if not 0 < byte_size <= found:
            raise InvalidArgumentError(f"{failed}: its memory has {found} bytes, found a 'byte_size' of {byte_size}")

    def __del__(self) -> None:
        address = getattr(self, "_address", 0)
        if address:
            # Copied out: a reference to the region in the queue would bring it back to life.
            opened, device = self._driver, self.device_id
            # In a thread: the garbage collector may run this on the event loop, and the device may block.
            opened.closing.put(lambda: opened.close(device, address))

    def check_filled(self, size: int) -> None:
        """Do nothing: memory of a device has no holes."""

    def read_into(self, target: memoryview, offset: int) -> None:
        try:
            self._driver.read(self.device_id, self._address + offset, target)
        except OSError as error:
            raise UnavailableError(f"shared memory region '{self.name}' cannot be read: {error.strerror}") from error

    def write(self, data: memoryview, offset: int) -> None:
        try:
            self._driver.write(self.device_id, self._address + offset, bytes(data))
        except OSError as error:
            raise UnavailableError(f"shared memory region '{self.name}' cannot be written: {error.strerror}") from error
