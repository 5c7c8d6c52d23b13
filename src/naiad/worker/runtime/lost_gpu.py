"""Whether this process has lost a GPU.

A kernel that fails, at an index beyond a table for example, leaves the process without the GPU: every later call of it
there fails in the same way, until the process ends. Source: the CUDA driver API, section "Data types used by CUDA
driver", whose descriptions of such errors say that the process must be terminated.
"""

from __future__ import annotations

import ctypes
import os
import sys

_LIBRARY = "libcuda.so.1"
_STICKY = frozenset({214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
"""ECC and NVLink errors, an illegal address, a time limit, an assertion, and other failures of kernels."""
_DESTROYED = 709


def lost_gpu(error: object) -> str:
    """Which GPU this process has lost, and the driver's word for why; "" when it has lost none.

    ``error`` is an exception or a text. Asks the driver only where it speaks of CUDA, and where the process uses the
    driver. Waits for nothing.
    """
    try:
        speaks_of_it = "cuda" in f"{type(error).__name__}: {error}".lower()
    except Exception:
        # The exception is the model's, and so is its text.
        return ""
    if not speaks_of_it:
        return ""
    try:
        # Not for a process without it: to load it would take memory on each GPU.
        library = ctypes.CDLL(_LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW) if sys.platform == "linux" else None
    except OSError:
        return ""
    return "" if library is None else _look(library)


def _look(library: ctypes.CDLL) -> str:
    count = ctypes.c_int()
    if library.cuDeviceGetCount(ctypes.byref(count)):
        return ""
    for number in range(count.value):
        code = _state(library, number)
        if code in _STICKY or code == _DESTROYED:
            return f"GPU {number} ({_text(library, code)})"
    return ""


def _state(library: ctypes.CDLL, number: int) -> int:
    """What a call on a GPU says; 0 for one that the process does not use, too."""
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if library.cuDeviceGet(ctypes.byref(device), ctypes.c_int(number)):
        return 0
    code = library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    if code or not active.value:
        return int(code)
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    if code := library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return int(code)
    try:
        library.cuCtxPushCurrent_v2(context)
        # One of the calls that report what went wrong before, and do not wait.
        code = library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        library.cuCtxPopCurrent_v2(ctypes.byref(context))
    finally:
        library.cuDevicePrimaryCtxRelease_v2(device)
    return int(code)


def _text(library: ctypes.CDLL, code: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text)) or not text.value:
        return f"error {code}"
    return text.value.decode("ascii", "replace")
