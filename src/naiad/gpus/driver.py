"""The library of NVIDIA's driver, which every working GPU comes with, and the GPUs that it knows.

Source: the CUDA driver API, sections "Initialization", "Device Management" and "Error Handling". The driver leaves out
what ``CUDA_VISIBLE_DEVICES`` hides, and numbers the others from 0 as the frameworks do.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

logger = logging.getLogger("naiad")

LIBRARY: Final = "libcuda.so.1"
_NO_DEVICE: Final = 100
_MAJOR: Final = 75
_MINOR: Final = 76
_NAME_BYTES: Final = 256


class DriverLibrary:
    """The functions of the driver.

    Raises:
        OSError: there is no library, or no working GPU.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        # Raises where a library is installed without a working GPU.
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; ``OSError`` with the driver's own text unless it returns 0."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise OSError(code, f"{name}: {self._text(code)}")

    def count(self) -> int:
        """How many GPUs there are."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def _text(self, code: int) -> str:
        text = ctypes.c_char_p()
        if self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text)) or not text.value:
            return f"error {code}"
        return text.value.decode("ascii", "replace")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        number: as the driver counts, from 0.
        name: of the product.
        uuid: of the card, without the prefix ``GPU-`` or ``MIG-``.
        capability: its compute capability, such as (9, 0).
        memory_bytes: all of its memory.
    """

    number: int
    name: str
    uuid: str
    capability: tuple[int, int]
    memory_bytes: int

    def __str__(self) -> str:
        major, minor = self.capability
        return f"GPU {self.number} ({self.name}, compute capability {major}.{minor})"


_lock = threading.Lock()
_found: tuple[Gpu, ...] | None = None


def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine, looked for at the first call, which may take a second."""
    global _found
    with _lock:
        if _found is None:
            _found = _look()
        return _found


def _look() -> tuple[Gpu, ...]:
    try:
        library = DriverLibrary()
    except OSError as error:
        # A machine without the library, or without a GPU, is nothing to speak of. A driver that fails is.
        if error.errno not in (None, _NO_DEVICE):
            logger.warning("the NVIDIA driver does not work, so that no model runs on a GPU: %s", error.strerror)
        return ()
    try:
        return tuple(_gpu(library, number) for number in range(library.count()))
    except (OSError, AttributeError) as error:
        logger.warning("the NVIDIA driver does not describe its GPUs, so that no model runs on one: %s", error)
        return ()


def _gpu(library: DriverLibrary, number: int) -> Gpu:
    handle = ctypes.c_int()
    library.call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(number))
    name = ctypes.create_string_buffer(_NAME_BYTES)
    library.call("cuDeviceGetName", name, ctypes.c_int(_NAME_BYTES), handle)
    uuid = (ctypes.c_ubyte * 16)()
    library.call("cuDeviceGetUuid_v2", ctypes.byref(uuid), handle)
    memory = ctypes.c_size_t()
    library.call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
    capability = _attribute(library, _MAJOR, handle), _attribute(library, _MINOR, handle)
    return Gpu(number, name.value.decode("utf-8", "replace"), str(UUID(bytes=bytes(uuid))), capability, memory.value)


def _attribute(library: DriverLibrary, which: int, handle: ctypes.c_int) -> int:
    value = ctypes.c_int()
    library.call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(which), handle)
    return value.value
