"""Python interpreters on this machine, and the facts that decide whether they can run a model."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from naiad.backends.shared.commands import run_command
from naiad.errors import ModelLoadError

OLDEST = (3, 8)
"""The oldest Python that can run models."""

_PROBE_S = 60.0
# Finds the line of the probe among whatever the start-up code of the environment prints.
_MARK = "naiad-python:"
_PROBE = (
    "import sys, json; from importlib.util import find_spec; "
    f"print('{_MARK}' + json.dumps([sys.version_info[:3], sys.executable, find_spec('numpy') is not None]))"
)
_VERSION = re.compile(r"(?:python)?(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One Python. ``path`` is the interpreter itself, not a script that looks for one."""

    path: Path
    version: tuple[int, int, int]
    has_numpy: bool

    @property
    def label(self) -> str:
        """Version and path, for error texts."""
        return f"{'.'.join(map(str, self.version))} ({self.path})"


def inspect(python: Path, env: Mapping[str, str] | None = None) -> Interpreter:
    """Run an interpreter to find out its version, path and packages.

    Raises:
        ModelLoadError: it does not start, or is no Python of ``OLDEST`` or later.
    """
    what = f"{python} cannot be used as a Python interpreter"
    text = run_command([python, "-c", _PROBE], what, _PROBE_S, env=env)
    found = next((line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK)), None)
    if found is None:
        raise ModelLoadError(f"{what}: it does not answer as one")
    version, path, has_numpy = json.loads(found)
    if tuple(version) < OLDEST:
        raise ModelLoadError(f"{what}: it is {'.'.join(map(str, version))}, models need {_dotted(OLDEST)} or later")
    # The path it names is not that of a pyenv shim; a stripped-down build may not know its own.
    return Interpreter(Path(path or python), (version[0], version[1], version[2]), has_numpy)


def find(version: str, needs_numpy: bool) -> Interpreter:
    """The interpreter of a version such as ``3.9`` or ``3.9.18``.

    Looked for, in this order: the server's own, ``pythonX.Y`` on the PATH, those of pyenv and of uv.

    Args:
        version: with or without ``python`` in front.
        needs_numpy: one without numpy does not do.

    Raises:
        ModelLoadError: there is none; the text lists what there is.
    """
    wanted = parse_version(version)
    if wanted is None:
        raise ModelLoadError(f"'{version}' is no version of Python, expected one such as 3.9")
    unusable = None
    for found in _all(wanted):
        if found.version[: len(wanted)] != wanted:
            continue
        if found.has_numpy or not needs_numpy:
            return found
        unusable = unusable or found
    if unusable:
        raise without_numpy(unusable)
    # For the error alone: to start every interpreter takes a while.
    others = sorted(_all(()), key=lambda found: found.version)
    listing = ", ".join(found.label for found in others) or "none"
    raise ModelLoadError(f"no Python {_dotted(wanted)} was found on the PATH, in pyenv or in uv; found: {listing}")


def without_numpy(found: Interpreter) -> ModelLoadError:
    """The error for an interpreter that models cannot use because numpy is missing."""
    return ModelLoadError(
        f"numpy is missing in Python {found.label}, and a model's process cannot do without; run: {found.path} -m pip "
        "install numpy"
    )


def parse_version(text: str) -> tuple[int, ...] | None:
    """``3.9`` or ``python3.9.18`` as numbers; None for what is no version."""
    found = _VERSION.fullmatch(text)
    return tuple(int(part) for part in found.groups() if part is not None) if found else None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _all(wanted: tuple[int, ...]) -> Iterator[Interpreter]:
    """Every interpreter that starts; with a version, only those whose place says that they may be it."""
    seen: set[Path] = set()
    for path in _places(wanted):
        try:
            found = inspect(path)
        except ModelLoadError:
            # A shim of pyenv for a version that is not active, say.
            continue
        if found.path not in seen:
            seen.add(found.path)
            yield found


def _places(wanted: tuple[int, ...]) -> Iterator[Path]:
    short = _dotted(wanted[:2])
    if sys.version_info[: len(wanted)] == wanted:
        yield Path(sys.executable)
    for folder in os.get_exec_path():
        names = [f"python{short}"] if wanted else _python_names(folder)
        for name in names:
            if path := shutil.which(name, path=folder):
                yield Path(path)
    for root in _version_roots():
        # The newest first.
        yield from sorted(root.glob(f"*{short}*/bin/python3" if wanted else "*/bin/python3"), key=_by_version)[::-1]


def _python_names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if re.fullmatch(r"python3\.\d+", name))
    except OSError:
        return []


def _version_roots() -> list[Path]:
    """Folders with one folder for each installed Python."""
    home = Path.home()
    return [
        Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions",
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or home / ".local/share/uv/python"),
    ]


def _by_version(path: Path) -> tuple[int, ...]:
    """The numbers in the name of the folder that holds ``bin/python3``."""
    return tuple(int(number) for number in re.findall(r"\d+", path.parent.parent.name)[:3])
