"""Which modules an environment has, asked of its own interpreter without importing them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from naiad.backends.shared.commands import run_command
from naiad.errors import ModelLoadError

_PROBE_S = 60.0
# Finds the line of the probe among whatever the start-up code of the environment prints.
_MARK = "naiad-packages:"
_PROBE = f"""
import json, sys, sysconfig
from importlib.util import find_spec
def is_missing(name):
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:
        return True
missing = [name for name in sys.argv[1:] if is_missing(name)]
print("{_MARK}" + json.dumps([sys.version_info[:3], sysconfig.get_config_var("SOABI") or "", missing]))
"""


@dataclass(frozen=True, slots=True)
class PackageFindings:
    """What an interpreter says of its packages.

    Attributes:
        version: of the interpreter.
        abi: the interface that its compiled modules are built for, as in the names of their files.
        missing: the modules that it does not find.
    """

    version: tuple[int, int, int]
    abi: str
    missing: tuple[str, ...]


def look_for(python: Path, modules: Iterable[str], env: Mapping[str, str]) -> PackageFindings:
    """Look for modules such as ``google.protobuf`` in the environment of an interpreter.

    Raises:
        ModelLoadError: the interpreter does not start, or does not answer.
    """
    what = f"the packages of {python} cannot be listed"
    text = run_command([python, "-c", _PROBE, *modules], what, _PROBE_S, env=env)
    found = next((line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK)), None)
    if found is None:
        raise ModelLoadError(f"{what}: it does not answer as a Python interpreter")
    version, abi, missing = json.loads(found)
    return PackageFindings((version[0], version[1], version[2]), abi, tuple(missing))
