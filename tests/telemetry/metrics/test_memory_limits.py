"""Limits of control groups are found wherever they are set: in a tree of files as the kernel shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from naiad.telemetry.metrics.host import usable_memory_bytes
from naiad.telemetry.metrics.memory_limits import cgroup_limit_bytes

V1_NONE = "9223372036854771712"
V2_MOUNT = "30 23 0:26 {inside} {mount} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1_MOUNT = "36 25 0:31 {inside} {mount} rw,nosuid shared:14 - cgroup cgroup rw,memory"
OTHER_MOUNTS = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n35 25 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct"


def tree(root: Path, group: str, mount: str, limits: dict[str, str]) -> Path:
    """A root folder with the files in ``limits``, and what ``/proc/self`` says."""
    for name, content in {"proc/self/cgroup": group, "proc/self/mountinfo": mount, **limits}.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    return root


def v2(root: Path, group: str, limits: dict[str, str], inside: str = "/", mount: str = "/sys/fs/cgroup") -> Path:
    files = {f"{mount[1:]}/{folder}/memory.max": limit for folder, limit in limits.items()}
    return tree(root, f"0::{group}", f"{OTHER_MOUNTS}\n{V2_MOUNT.format(inside=inside, mount=mount)}", files)


def v1(root: Path, group: str, limits: dict[str, str], inside: str = "/", mount: str = "/sys/fs/cgroup/memory") -> Path:
    files = {f"{mount[1:]}/{folder}/memory.limit_in_bytes": limit for folder, limit in limits.items()}
    groups = f"12:cpu,cpuacct:/other\n7:memory:{group}\n1:name=systemd:/else\n0::/"
    return tree(root, groups, f"{OTHER_MOUNTS}\n{V1_MOUNT.format(inside=inside, mount=mount)}", files)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"system.slice/naiad.service": "1000"}, 1000),
        ({"system.slice": "500", "system.slice/naiad.service": "1000"}, 500),
        ({"system.slice": "2000", "system.slice/naiad.service": "1000"}, 1000),
        ({"system.slice": "max", "system.slice/naiad.service": "1000"}, 1000),
        ({"system.slice": "700", "system.slice/naiad.service": "max"}, 700),
        ({"": "900"}, 900),
        ({"system.slice": "max", "system.slice/naiad.service": "max"}, None),
        ({"system.slice/other.service": "5", "user.slice": "6"}, None),
        ({"system.slice": "nonsense", "system.slice/naiad.service": "0"}, None),
        ({}, None),
    ],
)
def test_the_smallest_limit_on_the_way_up_counts_in_version_2(
    tmp_path: Path, limits: dict[str, str], expected: int | None
) -> None:
    assert cgroup_limit_bytes(v2(tmp_path, "/system.slice/naiad.service", limits)) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"batch": V1_NONE, "batch/job_7": "1000"}, 1000),
        ({"batch": "500", "batch/job_7": "1000"}, 500),
        ({"": "400", "batch": "500", "batch/job_7": "1000"}, 400),
        ({"other": "5"}, None),
    ],
)
def test_the_smallest_limit_on_the_way_up_counts_in_version_1(
    tmp_path: Path, limits: dict[str, str], expected: int | None
) -> None:
    assert cgroup_limit_bytes(v1(tmp_path, "/batch/job_7", limits)) == expected


def test_in_a_container_the_mount_may_be_the_group_itself(tmp_path: Path) -> None:
    inside = "/kubepods/pod1/abc"
    assert cgroup_limit_bytes(v1(tmp_path / "1", inside, {"": "800"}, inside)) == 800
    assert cgroup_limit_bytes(v1(tmp_path / "2", f"{inside}/nested", {"": "800", "nested": "70"}, inside)) == 70
    # What the process is told of may lie outside of what it sees.
    assert cgroup_limit_bytes(v1(tmp_path / "3", "/docker/x", {"": "800"}, inside)) == 800
    assert cgroup_limit_bytes(v2(tmp_path / "4", "/../../other", {"": "600"})) == 600


def test_groups_that_are_mounted_elsewhere(tmp_path: Path) -> None:
    both = v2(tmp_path, "/a/b", {"a": "90", "a/b": "max"}, mount="/sys/fs/cgroup/unified")
    assert cgroup_limit_bytes(both) == 90


def test_without_these_files_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_limit_bytes(tmp_path) is None
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("12345\n")
    assert cgroup_limit_bytes(tmp_path) == 12345


def test_the_memory_that_may_be_used_is_no_more_than_the_machines(tmp_path: Path) -> None:
    most = usable_memory_bytes(tmp_path)
    assert 0 < most <= psutil.virtual_memory().total
    assert usable_memory_bytes(v2(tmp_path, "/a", {"a": "123456"})) == 123456
    assert usable_memory_bytes(v2(tmp_path, "/a", {"a": str(1 << 62)})) == most


def test_a_limit_on_the_address_space_counts(tmp_path: Path) -> None:
    limit = 700 << 20
    code = (
        "import pathlib, resource, sys; from naiad.telemetry.metrics.host import usable_memory_bytes\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({limit}, resource.RLIM_INFINITY))\n"
        "print(usable_memory_bytes(pathlib.Path(sys.argv[1])))"
    )
    told = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert int(told.stdout) == limit
