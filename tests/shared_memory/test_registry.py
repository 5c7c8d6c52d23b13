"""The regions that are registered, by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.errors import NotFoundError
from naiad.shared_memory.region import RegionRef
from naiad.shared_memory.registry import MAX_CACHED, LookedUp, RegionRegistry
from naiad.shared_memory.spec import RegionOptions
from support.kept_objects import kept_of


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


def test_what_was_looked_up_is_void_when_a_name_comes_or_goes(key: str) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 0, 64)
    options = RegionOptions((), (("y", RegionRef("r", 0, 64)),))

    def keep() -> LookedUp:
        registry.keep(LookedUp(options, 8, {}, {"y": registry.part(RegionRef("r", 0, 64))}))
        found = registry.recall(options, 8)
        assert found is not None
        return found

    keep()
    assert registry.recall(options, 9) is None, "another model may read other inputs itself"
    alike = RegionOptions((), (("y", RegionRef("r", 0, 64)),))
    assert alike == options
    assert registry.recall(alike, 8) is None, "terms are known by their identity"
    registry.register_system("other", key, 0, 64)
    assert registry.recall(options, 8) is None
    for take_away in (registry.unregister_system, registry.unregister_cuda):
        keep()
        take_away("nobody")
        assert registry.recall(options, 8) is None
    keep()
    registry.unregister_system("")
    assert registry.recall(options, 8) is None
    assert registry.system("") == [], "nothing that is kept keeps a region open"


def test_few_are_kept(key: str) -> None:
    registry = RegionRegistry(is_allowed=True)
    registry.register_system("r", key, 0, 64)
    for _ in range(2 * MAX_CACHED):
        options = RegionOptions((), ())
        registry.keep(LookedUp(options, 8, {}, {}))
        assert registry.recall(options, 8) is not None
    assert kept_of(registry, LookedUp) <= MAX_CACHED
