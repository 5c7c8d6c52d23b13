"""The response cache's own parts: what makes two requests the same, and what is kept and for how long."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naiad.cache.key import MOST_INPUT_BYTES, MOST_OUTPUT_BYTES, RequestKeys
from naiad.cache.local import LocalCache
from naiad.request import Array, InferRequest, Outputs, RequestOptions
from support.kept_objects import kept_of
from support.loaded_models import spec, tensor

SPEC = spec([tensor("x", dims=(-1,)), tensor("s", "BYTES", (-1,), optional=True)])


def request(x: Array, s: list[bytes] | None = None, outputs: tuple[str, ...] = ("y",), **more: str) -> InferRequest:
    inputs = {"x": x}
    if s is not None:
        inputs["s"] = np.array(s, np.object_).reshape(1, -1)
    return InferRequest(RequestOptions(outputs, parameters=more), inputs)


def row(*values: float) -> Array:
    return np.array([values], np.float32)


def key(found: InferRequest, keys: RequestKeys | None = None) -> bytes:
    made = (keys or RequestKeys(SPEC, "m")).key(found)
    assert made is not None
    return made


def test_equal_requests_have_equal_keys_whatever_their_order_of_inputs() -> None:
    first, second = request(row(1, 2), [b"a"]), request(row(1, 2), [b"a"])
    second.inputs = dict(reversed(second.inputs.items()))
    assert key(first) == key(second)


@pytest.mark.parametrize(
    "other",
    [
        request(row(1, 3), [b"ab"]),
        request(row(1, 2).reshape(2, 1), [b"ab"]),
        request(row(1, 2), [b"a", b"b"]),
        request(row(1, 2)),
        request(row(1, 2), [b"ab"], ("y", "z")),
        request(row(1, 2), [b"ab"], temperature="0.5"),
    ],
    ids=["data", "shape", "elements", "optional input", "outputs", "parameters"],
)
def test_what_differs_has_another_key(other: InferRequest) -> None:
    assert key(request(row(1, 2), [b"ab"])) != key(other)


def test_another_loaded_model_has_other_keys() -> None:
    assert key(request(row(1))) != key(request(row(1)), RequestKeys(SPEC, "m2"))


def test_large_inputs_have_short_keys_and_very_large_ones_none() -> None:
    keys = RequestKeys(SPEC, "m")
    large = np.zeros((1, MOST_INPUT_BYTES // 4), np.float32)
    assert len(key(request(large), keys)) == 32
    other = large.copy()
    other[0, -1] = 1
    assert key(request(other), keys) != key(request(large), keys)
    assert keys.key(request(np.zeros((1, MOST_INPUT_BYTES // 4 + 1), np.float32))) is None
    assert keys.key(request(large, [b"more"])) is None


def test_terms_that_never_repeat_are_forgotten() -> None:
    keys = RequestKeys(SPEC, "m")
    made = {key(request(row(1), number=str(number)), keys) for number in range(5000)}
    assert len(made) == 5000
    assert kept_of(keys, RequestOptions) <= 1024


def test_what_is_kept_is_a_copy_that_nobody_can_change() -> None:
    cache = LocalCache(1 << 16)
    output = row(1, 2)
    assert cache.insert(b"k", Outputs({"y": output}, {"p": "v"}))
    output[:] = 0
    found = cache.look_up(b"k")
    assert isinstance(found, Outputs)
    assert found.parameters == {"p": "v"}
    assert found["y"].tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="read-only"):
        found["y"][0] = 5


def test_a_response_larger_than_the_cache_is_not_kept() -> None:
    cache = LocalCache(1 << 12)
    assert not cache.insert(b"k", {"y": np.zeros((1, 4096), np.float32)})
    assert not cache.insert(b"k", {"y": np.array([[b"x" * 4096]], np.object_)})
    assert (len(cache), cache.figures.used) == (0, 0)


def test_the_first_answer_stays() -> None:
    cache = LocalCache(1 << 16)
    assert cache.insert(b"k", {"y": row(1)})
    assert not cache.insert(b"k", {"y": row(2)})
    assert (cache.look_up(b"k") or {})["y"].tolist() == [[1]]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(1, 900)), max_size=60))
def test_it_is_a_cache_of_the_least_recently_used(actions: list[tuple[bool, int, int]]) -> None:
    capacity = 16 << 10
    cache, simple = LocalCache(capacity), OrderedDict[bytes, tuple[float, int]]()
    for is_insert, number, floats in actions:
        name = bytes([number])
        if is_insert:
            size = 1 + 1024 + 4 * floats
            if cache.insert(name, {"y": row(*[number] * floats)}):
                while sum(s for _, s in simple.values()) + size > capacity:
                    simple.popitem(last=False)
                simple[name] = number, size
        else:
            found = cache.look_up(name)
            assert (found is not None) == (name in simple)
            if found is not None:
                assert found["y"][0, 0] == number
                simple.move_to_end(name)
        assert cache.figures.used == sum(s for _, s in simple.values()) <= capacity
        assert cache.figures.entries == len(simple) == len(cache)


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(np.full((1, MOST_INPUT_BYTES // 56 + 1), b"", np.object_), id="very many, each empty"),
        pytest.param(np.array([[b"x" * MOST_INPUT_BYTES]], np.object_), id="a long one"),
        pytest.param(np.full((1, 1 << 16), 0, np.object_), id="that are not looked at"),
    ],
)
def test_texts_that_would_take_long_to_read_have_no_key(texts: Array) -> None:
    """Elements that are no texts show that they were not read: the last case would raise."""
    given = request(row(1))
    given.inputs = {**given.inputs, "s": texts}
    assert RequestKeys(SPEC, "m").key(given) is None


def test_texts_up_to_the_limit_have_a_key() -> None:
    most = (MOST_INPUT_BYTES - row(1).nbytes) // 56
    assert RequestKeys(SPEC, "m").key(request(row(1), [b""] * most)) is not None
    assert RequestKeys(SPEC, "m").key(request(row(1), [b""] * most + [b"x"])) is None


def test_answers_that_would_take_long_to_copy_are_not_kept() -> None:
    cache = LocalCache(1 << 30)
    assert cache.insert(b"k", {"y": np.zeros(MOST_OUTPUT_BYTES, np.uint8)})
    assert not cache.insert(b"l", {"y": np.zeros(MOST_OUTPUT_BYTES + 1, np.uint8)})
    assert not cache.insert(b"m", {"y": np.full(1 << 20, 0, np.object_)})
    assert len(cache) == 1
