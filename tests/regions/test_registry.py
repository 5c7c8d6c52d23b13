"""The regions that are registered, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.errors import NotFoundError
from naiad.regions.region import RegionRef
from naiad.regions.registry import RegionRegistry


@pytest.fixture
def key() -> Iterator[str]:
    name = f"naiad-test-registry-{os.getpid()}"
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(64))
    yield name
    path.unlink()


@pytest.mark.parametrize("name", ["r", ""])
def test_a_region_that_is_still_used_is_shown(key: str, name: str) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 0, 64)
    part = registry.part(RegionRef("r", 0, 64))
    registry.unregister_system(name)
    assert [region.name for region in registry.system("")] == ["r"]
    assert [region.byte_size for region in registry.system("r")] == [64]
    with pytest.raises(NotFoundError):
        registry.part(RegionRef("r", 0, 64))
    registry.register_system("r", key, 0, 32)
    assert [region.byte_size for region in registry.system("")] == [32], "the name stands for the newer one"
    registry.unregister_system("r")
    del part
    assert registry.system("") == []
    with pytest.raises(NotFoundError):
        registry.system("r")
