from __future__ import annotations

import pytest

from naiad.bounded_dict import BoundedDict


def test_a_new_key_empties_a_full_dict() -> None:
    cache: BoundedDict[int, str] = BoundedDict(2)
    cache[1] = "a"
    cache[2] = "b"
    assert cache == {1: "a", 2: "b"}
    cache[3] = "c"
    assert cache == {3: "c"}


def test_a_known_key_is_replaced_in_a_full_dict() -> None:
    cache: BoundedDict[int, str] = BoundedDict(2)
    cache[1] = "a"
    cache[2] = "b"
    cache[2] = "c"
    assert cache == {1: "a", 2: "c"}


@pytest.mark.parametrize("capacity", [1, 5, 64])
def test_never_exceeds_its_capacity(capacity: int) -> None:
    cache: BoundedDict[int, int] = BoundedDict(capacity)
    for key in range(1000):
        cache[key % 97] = key
        assert len(cache) <= capacity
        assert cache[key % 97] == key
