"""Running a package of AOTInductor for the processor without the interpreter lock.

torch's own loader keeps the lock for a whole run, in which the process could do nothing else. So the code is called
through its C interface (``aoti_runtime/interface.h`` of torch). Tensors travel as handles, as in torch's own wrappers.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import hashlib
import os
import shutil
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FOLDER: Final = "/data/aotinductor/"
_HANDLES: Final = ("unsafe_alloc_void_ptrs_from_tensors", "alloc_tensors_by_stealing_from_void_ptrs")
_Pointer = ctypes.c_void_p
_Pointers = ctypes.POINTER(ctypes.c_void_p)
_Size = ctypes.c_size_t
# The types of these functions let go of the interpreter lock. None is made by ``CDLL``, which leaves cycles behind.
_Create = ctypes.CFUNCTYPE(ctypes.c_int, _Pointers, _Size, ctypes.c_char_p, ctypes.c_char_p)
_Count = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.POINTER(_Size))
_Run = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointers, _Size, _Pointers, _Size, _Pointer, _Pointer)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer)
_LastError = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))


_libraries: dict[str, int] = {}
_loading = threading.Lock()


class CompiledCode:
    """The code of one package, ready to run.

    Args:
        library: the handle of its library.
        runs_at_once: how many threads may call it at the same time.

    Raises:
        OSError: it is no such code.
        RuntimeError: it does not start.
    """

    def __init__(self, library: int, runs_at_once: int) -> None:
        import torch

        self._container = _Pointer()
        self._library = library
        self._last_error = _LastError(self._function("AOTInductorGetLastError"))
        self._run = _Run(self._function("AOTInductorModelContainerRun"))
        self._delete = _Delete(self._function("AOTInductorModelContainerDelete"))
        create = _Create(self._function("AOTInductorModelContainerCreateWithDevice"))
        self._check(create(ctypes.byref(self._container), runs_at_once, b"cpu", None))
        self._outputs = self._count()
        self._handles_of: Callable[[list[Any]], list[Any]]
        self._tensors_of: Callable[[list[Any]], Sequence[Any]]
        self._handles_of, self._tensors_of = (getattr(torch._C._aoti, name) for name in _HANDLES)

    def __call__(self, tensors: list[Any]) -> Sequence[Any]:
        """Run the code on a list of tensors, which is empty afterwards, and return its outputs.

        Raises:
            RuntimeError: the run failed, with its own words.
        """
        addresses = [_address(capsule) for capsule in self._handles_of(tensors)]
        # The handles are the code's from here on, which releases an input as soon as it needs it no more.
        tensors.clear()
        inputs, outputs = (_Pointer * len(addresses))(*addresses), (_Pointer * self._outputs)()
        self._check(self._run(self._container, inputs, len(addresses), outputs, self._outputs, None, None))
        return self._tensors_of([_capsule(address) for address in outputs])

    def __del__(self) -> None:
        """Release the weights, which belong to this object alone."""
        if self._container:
            self._delete(self._container)

    def _function(self, name: str) -> int:
        return _ctypes.dlsym(self._library, name)

    def _count(self) -> int:
        found = _Size()
        count = _Count(self._function("AOTInductorModelContainerGetNumOutputs"))
        self._check(count(self._container, ctypes.byref(found)))
        return found.value

    def _check(self, code: int) -> None:
        """Raise the error of a call that returned ``code``. The code keeps its text for the calling thread."""
        if code:
            text = ctypes.c_char_p()
            self._last_error(ctypes.byref(text))
            raise RuntimeError((text.value or b"unknown error").decode(errors="replace"))


def code_of(package: Path, runs_at_once: int) -> CompiledCode | None:
    """The code of a package for the processor; None where it needs more than its own file, such as weights beside it or
    operators without a C interface, or was made by a torch whose code does not say why it failed."""
    import torch

    if not all(hasattr(torch._C._aoti, name) for name in _HANDLES):
        return None
    with zipfile.ZipFile(package) as archive:
        files = [name for name in archive.namelist() if _FOLDER in name]
        libraries = [name for name in files if name.endswith(".so")]
        if len(libraries) != 1 or not all(name.endswith((".so", ".cpp", "_metadata.json")) for name in files):
            return None
        with contextlib.suppress(OSError, RuntimeError):
            return CompiledCode(_library(archive, libraries[0]), runs_at_once)
    return None


def _library(archive: zipfile.ZipFile, name: str) -> int:
    """The handle of the library in an archive. It is loaded once for all models and for ever: it has symbols that must
    be unique in a process, with which the C library unloads nothing, and each load would take memory anew."""
    with _loading, tempfile.TemporaryDirectory(prefix="naiad-code-") as folder:
        file = Path(folder, "code.so")
        with archive.open(name) as source, file.open("wb") as target:
            shutil.copyfileobj(source, target)
        with file.open("rb") as written:
            digest = hashlib.file_digest(written, "sha256").hexdigest()
        if digest not in _libraries:
            # Mapped from here on, so that the file need not stay: a process that is killed leaves none behind.
            _libraries[digest] = _ctypes.dlopen(str(file), os.RTLD_NOW | os.RTLD_LOCAL)
    return _libraries[digest]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = _Pointer, (ctypes.py_object, ctypes.c_char_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (_Pointer, ctypes.c_char_p, _Pointer)


def _address(capsule: Any) -> int | None:
    found: int | None = _get_pointer(capsule, None)
    return found


def _capsule(address: int | None) -> Any:
    return None if address is None else _new_capsule(address, None, None)
