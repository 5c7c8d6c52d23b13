"""Environments of the other servers: each has its own packages from PyPI, in a folder that is kept."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..figures import CaseSkippedError

VARIABLE = "NAIAD_BENCH_CACHE"
INSTALL_SECONDS = 1200
MARK = "installed"


def cache_folder() -> Path:
    """Where environments are kept from one run to the next: ``$NAIAD_BENCH_CACHE``, or among the user's caches."""
    if named := os.environ.get(VARIABLE):
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "naiad-bench")


def environment(name: str, requirements: Sequence[str]) -> Path:
    """The ``bin`` folder of an environment with these packages, made now if it is not there.

    Raises:
        CaseSkippedError: they cannot be installed; the text has the reason.
    """
    key = hashlib.sha256("\n".join((sys.version, *requirements)).encode()).hexdigest()[:12]
    folder = cache_folder() / f"{name}-{key}"
    if not (folder / MARK).exists():
        print(f"installing {name} in {folder} ...", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _make(name, folder, requirements)
        (folder / MARK).write_text("\n".join(requirements) + "\n")
    return folder / "bin"


def _make(name: str, folder: Path, requirements: Sequence[str]) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, *requirements]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CaseSkippedError(f"{name} could not be installed: {error}") from None
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR")]
            reason = said[-1] if said else (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise CaseSkippedError(f"{name} could not be installed ({', '.join(requirements)}): {reason}")
