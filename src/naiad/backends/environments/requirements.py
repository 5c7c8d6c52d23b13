"""Environments made from a file of requirements, once for each content of the file and each interpreter.

They are cached in a folder of the user, each under a hash of all that it was made from. An environment is made in
the place where it stays, because its scripts name that place; the file ``naiad.json`` says that it is whole. A lock
beside it keeps two servers, or two models, from making the same at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from naiad.backends.environments.interpreters import Interpreter
from naiad.backends.environments.packages import look_for
from naiad.backends.shared.build_lock import locked
from naiad.backends.shared.commands import run_command
from naiad.errors import ModelLoadError

logger = logging.getLogger("naiad")

BUILD_S = 1800.0
"""How long making one environment may take."""

MARKER = "naiad.json"
# They belong to the server's own interpreter and would mislead another one.
_NOT_FOR_OTHERS = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")


def environment_from(requirements: Path, base: Interpreter, cache: Path, also: Mapping[str, str]) -> Path:
    """The folder of an environment with these requirements and numpy, made now unless the cache has it.

    Made with ``uv`` when it is on the PATH, else with ``venv`` and ``pip``, which read their own configuration.

    Args:
        requirements: a file as pip reads it; files that it names are found beside it.
        base: the interpreter that it is for.
        cache: the folder that holds all of them.
        also: modules that it needs beside numpy where its Python is not of the server's version, and the distributions
            that have them.

    Raises:
        ModelLoadError: it cannot be made; the text ends with the last lines of the tool that failed.
    """
    needed = {"numpy": "numpy"}
    if base.version[:2] != sys.version_info[:2]:
        needed.update(also)
    folder = cache / _digest(requirements, base, needed)
    if not _is_whole(folder):
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelLoadError(
                f"the folder for environments {cache} cannot be made: {error.strerror}; "
                "--backend-config=environment-cache=<folder> names another one"
            ) from None
        # Beside the folder, which a build removes first.
        with locked(folder.with_suffix(".lock"), 2 * BUILD_S) as lock_fd:
            # Again: the process that had the lock may have built it.
            if not _is_whole(folder):
                _build(requirements, base, folder, needed, lock_fd)
    # The age of the marker is that of the last use, for tools that clear the cache by age.
    with contextlib.suppress(OSError):
        os.utime(folder / MARKER)
    return folder


def _is_whole(folder: Path) -> bool:
    # The interpreter inside leads to the one it was made from, which may be gone.
    return (folder / MARKER).is_file() and (folder / "bin" / "python").exists()


def _build(requirements: Path, base: Interpreter, folder: Path, needed: Mapping[str, str], lock_fd: int) -> None:
    begun = time.monotonic()
    uv = shutil.which("uv")
    logger.info("making an environment from %s with %s for Python %s", requirements, uv or "pip", base.label)
    # What a build that was interrupted has left.
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    if uv:
        made = [uv, "venv", "--quiet", "--python", str(base.path), str(folder)]
        install = [uv, "pip", "install", "--python", str(python)]
    else:
        made = [str(base.path), "-m", "venv", str(folder)]
        install = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    what = f"the environment of {requirements} cannot be made"
    env = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_OTHERS}

    def run(command: Sequence[str], what: str) -> None:
        # The lock stays taken for as long as something is written, even if the server is killed meanwhile.
        run_command(command, what, BUILD_S, env=env, cwd=requirements.parent, pass_fds=[lock_fd])

    try:
        run(made, what)
        run([*install, "-r", str(requirements)], what)
        if missing := [needed[module] for module in look_for(python, needed, env).missing]:
            run([*install, *missing], f"{what}: it needs {' and '.join(missing)} too")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _mark(folder, {"requirements": str(requirements), "python": base.label})
    logger.info("made the environment %s in %.1f s", folder, time.monotonic() - begun)


def _mark(folder: Path, about: Mapping[str, str]) -> None:
    written = folder / f"{MARKER}.new"
    written.write_text(json.dumps(about) + "\n")
    # Renamed when written in full: the marker says that the environment is complete.
    written.rename(folder / MARKER)


def _digest(requirements: Path, base: Interpreter, needed: Mapping[str, str]) -> str:
    """A name that differs for environments with different content."""
    digest = hashlib.sha256(repr((base.version, str(base.path.resolve()), *sorted(needed.values()))).encode())
    # The contents and not the paths: models with equal requirements share an environment.
    for path in _files(requirements, set()):
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError as error:
            raise ModelLoadError(f"the requirements {path} cannot be read: {error.strerror}") from None
    return digest.hexdigest()[:32]


def _files(requirements: Path, seen: set[Path]) -> Iterator[Path]:
    """The file itself and every file that it names: other requirements, constraints, wheels."""
    if requirements in seen:
        return
    seen.add(requirements)
    yield requirements
    try:
        lines = requirements.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        # Reading it for the digest says what is wrong with it; a wheel is no text.
        return
    for line in lines:
        for word in line.partition(" #")[0].replace("=", " ").split():
            named = requirements.parent / word
            if named.is_file():
                yield from _files(named, seen)
