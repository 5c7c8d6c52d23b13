"""Print what this Python environment lacks of the project's requirements, one per line; nothing when it is up to date.

    requirements.py [NAME...]    NAME is an extra or a dependency group of pyproject.toml

"naiad" stands for the project itself, which counts as missing unless it is imported from this checkout.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def main(names: list[str]) -> int:
    """Print the missing requirements of the project, of the named extras and of the named groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = list(project["project"]["dependencies"])
    known = {**project["project"]["optional-dependencies"], **project["dependency-groups"]}
    for name in names:
        if name not in known:
            print(f"pyproject.toml has no extra or group {name!r}; it has {', '.join(sorted(known))}", file=sys.stderr)
            return 3
        wanted.extend(known[name])
    missing = [line for line in dict.fromkeys(wanted) if not is_met(line)]
    print("\n".join([*missing, *([] if is_this_checkout() else ["naiad"])]))
    return 0


def is_met(line: str) -> bool:
    """Whether an installed distribution satisfies the requirement, or its marker excludes this platform.

    Without a parser of requirements nothing counts as met: pip will know.
    """
    try:
        from pip._vendor.packaging.requirements import Requirement
    except ImportError:
        return False
    requirement = Requirement(line)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return True
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def is_this_checkout() -> bool:
    """Whether ``import naiad`` finds the sources beside this script."""
    spec = importlib.util.find_spec("naiad")
    return spec is not None and spec.origin == str(ROOT / "src" / "naiad" / "__init__.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
