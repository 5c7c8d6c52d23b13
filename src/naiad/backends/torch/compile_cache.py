"""Programs compiled with AOTInductor, kept in a folder of the user over restarts.

Each lies under a hash of all that it was made from: the archive, the version of torch, and the processor or the kind
of GPU, whose instructions the code uses. A lock beside it keeps two servers, or two models, from compiling the same at
the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from naiad.backends.shared.build_lock import locked
from naiad.backends.shared.commands import run_command
from naiad.cache_folder import cache_folder
from naiad.errors import ModelLoadError

log = logging.getLogger("naiad")

PROCESSOR: Final = "cpu"
COMPILE_S: Final = 1800.0
"""How long one compilation may take."""
# Counts the ways of compiling: code that was made in an earlier one is not used.
_MAKE: Final = 2
_PROGRAM: Final = "naiad.backends.torch.compile_main"
_INDUCTOR_FOLDER: Final = "TORCHINDUCTOR_CACHE_DIR"


def keep_inductor_files() -> None:
    """Let torch's compiler keep its files beside the compiled programs, unless the environment names a folder.

    Torch makes the folder when its compiler is imported, in the folder for temporary files if nothing is said. It would
    stay there after the server, and a restart of the machine would take what ``torch.compile`` has made.
    """
    if _INDUCTOR_FOLDER in os.environ:
        return
    folder = cache_folder("compiled") / "inductor"
    # Where it cannot be made, torch goes on with its own.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[_INDUCTOR_FOLDER] = str(folder)


def compiler() -> str | None:
    """The C++ compiler that AOTInductor would use, None without one. Source: ``cpp.cxx`` of torch's inductor."""
    return os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


def compiled_from(model: str, archive: Path, cache: Path, device: str) -> Path:
    """The package made from ``archive`` for ``device``, such as ``cpu``, compiled now unless the cache has it.

    Raises:
        ModelLoadError: it cannot be compiled; the text ends with the compiler's last lines.
    """
    package = cache / f"{_digest(archive, device)}.pt2"
    if package.is_file():
        log.info("model '%s': %s was compiled before, the code is in %s", model, archive.name, package)
    else:
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelLoadError(
                f"the folder for compiled models {cache} cannot be made: {error.strerror}; "
                "--backend-config=pytorch,compile-cache=<folder> names another one"
            ) from None
        with locked(package.with_suffix(".lock"), 2 * COMPILE_S) as lock_fd:
            # Again: the process that had the lock may have compiled it.
            if not package.is_file():
                _compile(model, archive, package, device, lock_fd)
    # Its age is that of the last use, for tools that clear the cache by age.
    with contextlib.suppress(OSError):
        os.utime(package)
    return package


def keep(archive: Path, package: Path, cache: Path) -> None:
    """Copy a package that ``compile_archive`` has made from ``archive`` for the processor into the cache.

    Raises:
        OSError: it cannot be written.
    """
    kept = cache / f"{_digest(archive, PROCESSOR)}.pt2"
    cache.mkdir(parents=True, exist_ok=True)
    # Of this process alone, and renamed when written in full.
    written = kept.with_suffix(f".{os.getpid()}.pt2")
    try:
        shutil.copyfile(package, written)
        written.rename(kept)
    finally:
        written.unlink(missing_ok=True)


def _compile(model: str, archive: Path, package: Path, device: str, lock_fd: int) -> None:
    begun = time.monotonic()
    target = "this processor" if device == PROCESSOR else device
    log.info("model '%s': compiling %s for %s, once", model, archive.name, target)
    # The name must end so; it is renamed when written in full.
    written = package.with_suffix(".new.pt2")
    # Precompiled headers, which take most of the time of a small model, are shared by all models.
    env = {**os.environ, _INDUCTOR_FOLDER: str(package.parent / "inductor")}
    command: list[str | Path] = [sys.executable, "-m", _PROGRAM, archive.absolute(), written, device]
    try:
        run_command(command, f"model '{model}': {archive} cannot be compiled", COMPILE_S, env=env, pass_fds=[lock_fd])
        written.rename(package)
    finally:
        written.unlink(missing_ok=True)
    taken_s = time.monotonic() - begun
    log.info("model '%s': compiled %s in %.1f s; the code is in %s", model, archive.name, taken_s, package)


def _digest(archive: Path, device: str) -> str:
    import torch

    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    made_of: tuple[object, ...] = (_MAKE, torch.__version__, platform.machine(), _processor())
    if device != PROCESSOR:
        # All GPUs of one kind run the same code.
        made_of = (*made_of, torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    digest.update(repr(made_of).encode())
    return digest.hexdigest()[:32]


def _processor() -> str:
    """What tells this kind of processor from others: its model and instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return " ".join(found.get(key, "") for key in ("model name", "flags", "Features"))
