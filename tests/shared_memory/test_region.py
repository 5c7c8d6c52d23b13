"""Regions by themselves: which objects they are, which parts of them, and how long they stay open."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from naiad.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NaiadError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from naiad.shared_memory import registry as registry_module
from naiad.shared_memory.region import RegionRef, SystemRegion
from naiad.shared_memory.registry import RegionRegistry
from naiad.shared_memory.tensor_ref import PlacedOutput, RegionTensor, RegionUse, as_array

SIZE = 8192


@pytest.fixture(scope="module")
def key() -> Iterator[str]:
    name = f"/naiad-test-{uuid.uuid4().hex}"
    Path("/dev/shm" + name).write_bytes(bytes(range(256)) * (SIZE // 256))
    yield name
    os.unlink("/dev/shm" + name)


def open_files(key: str) -> int:
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{entry}") == "/dev/shm" + key
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "wrong",
    [".", "..", "/..", "a/b", "/../etc/passwd", "/a\0b", "x" * 256, "\ud800", "/none-of-that-name"],
)
def test_keys_that_name_nothing(wrong: str) -> None:
    with pytest.raises(InternalError) as refused:
        SystemRegion("r", wrong, 0, 16)
    assert str(refused.value) == f"Unable to open shared memory region: '{wrong}'"


@pytest.mark.parametrize("wrong", ["", "/", "///"])
def test_keys_that_are_empty(wrong: str) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        SystemRegion("r", wrong, 0, 16)
    assert str(refused.value) == f"cannot register shared memory region 'r' - invalid shm key '{wrong}'"


@pytest.mark.parametrize("slashes", ["", "/", "///"])
def test_keys_of_processes_of_models(slashes: str) -> None:
    key = slashes + "triton_python_backend_shm_region_1"
    with pytest.raises(InvalidArgumentError) as refused:
        SystemRegion("r", key, 0, 16)
    text = f"cannot register shared memory region 'r' with key '{key}' as the key contains the reserved prefix"
    assert str(refused.value) == f"{text} 'triton_python_backend_shm_region_'"


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [(0, SIZE + 1), (1, SIZE), (SIZE, 1), (0, 0), (2**64 - 1, 2), (0, 2**64 - 1), (-1, 8)]
)
def test_parts_that_are_not_in_the_object(key: str, shape: tuple[int, int]) -> None:
    before = open_files(key)
    with pytest.raises(InvalidArgumentError) as refused:
        SystemRegion("r", key, *shape)
    assert str(refused.value).startswith("failed to register shared memory region 'r': invalid args, ")
    del refused
    gc.collect()
    assert open_files(key) == before


@given(offset=st.integers(-3, 2**65), size=st.integers(-3, 2**65))
@example(offset=32, size=2**64 - 32)
def test_no_part_is_outside_of_its_region(key: str, offset: int, size: int) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 100, 1000)
    fits = offset >= 0 and size >= 0 and offset + size <= 1000 and (offset < 1000 or size == 0)
    try:
        part = registry.part(RegionRef("r", offset, size))
    except InvalidArgumentError as error:
        assert not fits
        if 0 <= offset < 1000 and offset + size >= 2**64:
            overflow = f"Integer overflow detected: byte_size {size} + offset {offset} is more than {2**64 - 1}"
            assert str(error) == f"{overflow}, for shared memory region: 'r'"
        else:
            assert str(error) in (
                "Invalid offset for shared memory region: 'r'",
                "Invalid offset + byte size for shared memory region: 'r'",
            )
    else:
        assert fits
        assert (part.offset, part.byte_size) == (offset, size)


def test_a_region_is_open_as_long_as_somebody_uses_it(key: str) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 256, 512)
    part = registry.part(RegionRef("r", 0, 512))
    with pytest.raises(AlreadyExistsError, match="shared memory region 'r' already in manager"):
        registry.register_system("r", key, 0, 16)
    registry.unregister_system("r")
    registry.unregister_system("r")
    with pytest.raises(NotFoundError, match="Unable to find shared memory region: 'r'"):
        registry.part(RegionRef("r", 0, 512))
    registry.register_system("r", key, 0, 16)
    tensor = RegionTensor(part, np.dtype(np.uint8), (2, 256))
    assert np.array_equal(tensor.read(), [range(256)] * 2)
    assert open_files(key) == 2
    del part, tensor
    assert open_files(key) == 1
    registry.unregister_system("")
    assert open_files(key) == 0
    assert registry.system("") == []


def test_the_number_of_regions_is_bounded(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_REGIONS", 3)
    registry = RegionRegistry(is_allowed=True)
    for name in "abc":
        registry.register_system(name, key, 0, 16)
    held = registry.part(RegionRef("a", 0, 8))
    registry.unregister_system("a")
    # Its name is gone, and it is still open.
    with pytest.raises(UnavailableError, match="3 regions are open, at most 3 may be"):
        registry.register_system("d", key, 0, 16)
    del held
    registry.register_system("d", key, 0, 16)
    assert [region.name for region in registry.system("")] == ["b", "c", "d"]
    registry.close()
    assert open_files(key) == 0


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_names_that_are_none(key: str, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"found one of {len(name)}$"):
        RegionRegistry(is_allowed=True).register_system(name, key, 0, 16)


def test_nothing_is_allowed_unless_it_is(key: str) -> None:
    registry = RegionRegistry()
    actions = [
        lambda: registry.register_system("r", key, 0, 16),
        lambda: registry.unregister_system(""),
        lambda: registry.unregister_cuda("r"),
        lambda: registry.part(RegionRef("r", 0, 8)),
    ]
    for action in actions:
        with pytest.raises(UnsupportedError, match="Client shared memory is disabled"):
            action()
    assert registry.system("") == registry.cuda("") == []


def test_truncated_memory_is_an_error_and_stays_as_small(tmp_path: Path) -> None:
    path = Path(f"/dev/shm/naiad-test-{uuid.uuid4().hex}")
    path.write_bytes(bytes(SIZE))
    try:
        region = SystemRegion("r", "/" + path.name, 0, SIZE)
        region.write(memoryview(b"abc"), SIZE - 3)
        os.truncate(path, 100)
        for act in (
            lambda: region.read_into(memoryview(bytearray(101)), 0),
            lambda: region.write(memoryview(b"x"), 100),
        ):
            with pytest.raises(InvalidArgumentError, match="region 'r' is not as large as it was"):
                act()
        region.read_into(memoryview(bytearray(100)), 0)
        assert path.stat().st_size == 100
    finally:
        path.unlink()


def test_outputs_are_written_unless_they_are_there(key: str) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 0, SIZE)
    use = RegionUse({name: registry.part(RegionRef("r", at, 64)) for name, at in (("A", 0), ("B", 64), ("C", 128))})
    strings = np.array([b"ab", b""], np.object_)
    outputs = {
        "A": np.arange(16, dtype=np.int32)[::-1],
        "B": as_array(PlacedOutput(np.dtype(np.int8), (64,))),
        "C": strings,
    }
    before = Path("/dev/shm" + key).read_bytes()
    use.place(outputs)
    after = Path("/dev/shm" + key).read_bytes()
    assert after[:64] == np.arange(15, -1, -1, dtype=np.int32).tobytes()
    assert after[64:128] == before[64:128]
    assert after[128:138] == b"\x02\0\0\0ab\0\0\0\0"
    assert after[138:] == before[138:]
    with pytest.raises(NaiadError, match=r"output 'A' \(64 bytes\) should be at least 65 bytes to hold the results"):
        use.place({"A": np.zeros(65, np.uint8)})
