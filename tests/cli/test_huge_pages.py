"""Huge pages for large memory: when the server begins anew for them, and that it is the same process then."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from naiad.cli.huge_pages import HUGE, TUNABLES, can_have
from server.models import identity, numbers, write_model
from server.running import serving

MADVISE = "always [madvise] never\n"


@pytest.mark.parametrize(
    ("environ", "library", "setting", "expected"),
    [
        ({}, "glibc 2.36", MADVISE, True),
        ({TUNABLES: "glibc.malloc.check=0"}, "glibc 2.35", MADVISE, True),
        ({TUNABLES: f"{HUGE}=0"}, "glibc 2.36", MADVISE, False),
        ({TUNABLES: f"{HUGE}=1"}, "glibc 2.36", MADVISE, False),
        ({}, "glibc 2.34", MADVISE, False),
        ({}, "glibc 3.1", MADVISE, True),
        ({}, "musl 1.2", MADVISE, False),
        ({}, "glibc", MADVISE, False),
        ({}, "", MADVISE, False),
        ({}, "glibc 2.36", "[always] madvise never\n", False),
        ({}, "glibc 2.36", "always madvise [never]\n", False),
        ({}, "glibc 2.36", "", False),
    ],
)
def test_when_it_makes_a_difference(environ: dict[str, str], library: str, setting: str, expected: bool) -> None:
    assert can_have(environ, library, setting) is expected


@pytest.mark.parametrize("told", ["", f"{HUGE}=0", "glibc.malloc.check=0"])
def test_a_server_is_told_once_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[madvise]" not in setting.read_text():
        pytest.skip("this system gives huge pages to all processes, or to none")
    monkeypatch.setenv(TUNABLES, told)
    write_model(tmp_path / "models", "m", identity())
    with serving(tmp_path / "log", tmp_path / "models") as server:
        assert server.infer("m", numbers([1])).status == 200
        found = psutil.Process(server.process.pid).environ()[TUNABLES]
    # The C library cuts the text where the system shows it.
    assert found.split(":")[0] == (told if told.startswith(HUGE) else f"{HUGE}=1")
