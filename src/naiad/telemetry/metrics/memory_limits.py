"""The limits that the operating system puts on the memory of this process.

Source of the files: the kernel's documents on control groups (``cgroup-v1/memory``, ``cgroup-v2``) and proc(5).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path("/")
_V2, _V1 = "memory.max", "memory.limit_in_bytes"
_LIMIT_FILES: Final = {"cgroup2": _V2, "cgroup": _V1}
_USUAL_MOUNTS: Final = (("cgroup2", "/sys/fs/cgroup"), ("cgroup", "/sys/fs/cgroup/memory"))
"""The mount point of control groups on nearly every machine; read even when the process cannot find the actual one."""


def cgroup_limit_bytes(root: Path = ROOT) -> int | None:
    """The smallest limit of the control group of this process and of those around it; None when there is none.

    ``root`` is the folder that holds ``proc`` and ``sys``.
    """
    groups = dict(_groups(root))
    limits: list[int] = []
    for kind, inside, mount in (*_mounts(root), *((kind, "/", mount) for kind, mount in _USUAL_MOUNTS)):
        top = root / mount.lstrip("/")
        for folder in _upwards(groups.get(kind, "/"), inside):
            limits += _limits(top / folder / _LIMIT_FILES[kind])
    return min(limits, default=None)


def address_space_limit_bytes() -> int | None:
    """The limit on the address space of this process (``ulimit -v``); None when there is none."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """The control groups that bound the memory of this process, by the kind of their file system."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        # Version 2 has one line, "0::<group>"; version 1 has one for each hierarchy of controllers.
        if number == "0" and not controllers:
            yield "cgroup2", group
        elif "memory" in controllers.split(","):
            yield "cgroup", group


def _mounts(root: Path) -> Iterator[tuple[str, str, str]]:
    """Where control groups are mounted: the kind, the group that is mounted, and the folder."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 6 or kinds[0] not in _LIMIT_FILES:
            continue
        if kinds[0] == "cgroup" and "memory" not in kinds[-1].split(","):
            continue
        # proc(5): the fourth field is the mounted group, the fifth the mount point.
        yield kinds[0], fields[3], fields[4]


def _upwards(group: str, inside: str) -> Iterator[PurePosixPath]:
    """The folders of ``group`` and of those around it below a mount of ``inside``, and the mount itself.

    A container may see a group of the host in ``/proc/self/cgroup`` and have only its own mounted: then the mount
    itself is its group.
    """
    try:
        folder = PurePosixPath(group).relative_to(inside)
    except ValueError:
        folder = PurePosixPath()
    # A group outside the process's own namespace is shown as a path that leads up.
    if ".." in folder.parts:
        folder = PurePosixPath()
    yield folder
    yield from folder.parents


def _limits(file: Path) -> list[int]:
    """The limit in ``file``, if there is one."""
    # Without a limit version 2 says "max"; version 1 a number beyond any machine's memory, which loses to it.
    return [int(line) for line in _lines(file)[:1] if line.isdigit() and int(line) > 0]


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
