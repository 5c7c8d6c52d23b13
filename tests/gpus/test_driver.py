"""Which GPUs there are: the driver's library, in a process that finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from naiad.gpus.access import GpuAccess
from naiad.gpus.usable import NO_GPUS, UsableGpus
from support.driver_libraries import UUIDS, asked, needs_compiler, write_driver


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_driver(tmp_path_factory.mktemp("driver"))


SHOW = "from naiad.gpus.driver import gpus\nfor gpu in gpus(): print(gpu, gpu.uuid, gpu.memory_bytes)"


@needs_compiler
def test_the_gpus_that_the_driver_knows(driver: Path) -> None:
    assert asked(SHOW, driver).splitlines() == [
        f"GPU 0 (New Card, compute capability 9.0) {UUIDS[0][4:]} 1000000",
        f"GPU 1 (Old Card, compute capability 6.1) {UUIDS[1][4:]} 1000000",
    ]


@needs_compiler
def test_a_driver_that_fails_is_a_warning(driver: Path) -> None:
    assert asked(SHOW, driver, DRIVER_FAILS="999") == (
        "the NVIDIA driver does not work, so that no model runs on a GPU: cuInit: the driver is broken"
    )


@needs_compiler
def test_a_driver_without_a_gpu_is_nothing_to_speak_of(driver: Path) -> None:
    assert asked(SHOW, driver, DRIVER_FAILS="100") == ""


@needs_compiler
@pytest.mark.parametrize(
    ("minimum", "expected"),
    [
        ("7.5", "(0,) GPU 1 (Old Card, compute capability 6.1)"),
        ("6", "(0, 1)"),
        ("6.2", "(0,) GPU 1 (Old Card, compute capability 6.1)"),
    ],
)
def test_the_capability_that_a_gpu_must_have(driver: Path, minimum: str, expected: str) -> None:
    code = "from naiad.gpus.access import GpuAccess\nimport sys\nfound = GpuAccess.of(sys.argv[1]).usable()\n"
    code = code.replace("sys.argv[1]", repr(minimum)) + "print(found.ids, found.left_out)"
    assert asked(code, driver) == expected


def test_a_machine_without_a_driver() -> None:
    assert asked(SHOW, None) == "" or Path("/proc/driver/nvidia").exists()


def test_limits_are_read_from_the_options() -> None:
    access = GpuAccess.of("8.0", ["0:0.5", "1:1.0", "0:0.8"])
    assert access == GpuAccess("8.0", {0: 0.8, 1: 1.0})
    # No GPU of these has a limit, so nothing is asked.
    access.check_room("m", {7})
    assert UsableGpus() == NO_GPUS
