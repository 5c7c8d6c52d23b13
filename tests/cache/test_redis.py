"""The cache in Redis by itself: what waits for a Redis that hangs is bounded, and its end does not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from naiad.cache.packed import MAX_VALUE
from naiad.cache.redis import MAX_INSERT_BYTES, MAX_LOOKUPS, Insertion, LookUp, RedisCache
from naiad.options.redis_config import RedisSettings
from naiad.testing import wait_until
from support.redis_server import RedisServer, needs_redis, running_redis

pytestmark = needs_redis


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(tmp_path) as found:
        yield found


@pytest.fixture
def cache(redis: RedisServer) -> Iterator[RedisCache]:
    made = RedisCache(RedisSettings("127.0.0.1", redis.port, socket_timeout_ms=60_000, pool_size=2))
    wait_until(lambda: made.is_up, 10, "it is connected")
    yield made
    redis.go_on()
    made.close()


class Results:
    """What look-ups found, by key."""

    def __init__(self) -> None:
        self.found: dict[str, bytes | None] = {}

    def look_up(self, cache: RedisCache, key: str) -> bool:
        return cache.look_up(LookUp(key, lambda value: value, lambda value: self.found.update({key: value})))


def insert(cache: RedisCache, key: str, value: bytes, size: int = 0) -> bool:
    return cache.insert(Insertion(key, lambda: value, size or len(value)))


def test_what_is_kept_is_found(cache: RedisCache) -> None:
    results = Results()
    for n in range(100):
        assert insert(cache, f"k{n}", b"%d" % n)
    wait_until(lambda: cache.figures.insertion_ns, 10, "some are kept")

    def all_found() -> bool:
        for n in range(100):
            results.look_up(cache, f"k{n}")
        return results.found == {f"k{n}": b"%d" % n for n in range(100)}

    wait_until(all_found, 10, "all are found")
    results.look_up(cache, "other")
    wait_until(lambda: "other" in results.found, 10, "it is looked up")
    assert results.found["other"] is None
    assert cache.figures.failures == 0


def test_look_ups_that_wait_are_bounded(cache: RedisCache, redis: RedisServer) -> None:
    redis.hold()
    results = Results()
    taken = sum(results.look_up(cache, f"k{n}") for n in range(2 * MAX_LOOKUPS))
    # Those of the round trips that are under way wait for Redis.
    assert MAX_LOOKUPS <= taken < MAX_LOOKUPS + 100
    redis.go_on()
    wait_until(lambda: len(results.found) == taken, 20, "all are answered")


def test_answers_that_wait_to_be_kept_are_bounded(cache: RedisCache, redis: RedisServer) -> None:
    redis.hold()
    size = 1 << 20
    taken = sum(insert(cache, f"k{n}", b"x", size) for n in range(4 * MAX_INSERT_BYTES // size))
    assert MAX_INSERT_BYTES // size <= taken <= MAX_INSERT_BYTES // size + 32
    redis.go_on()
    with redis.client() as client:
        wait_until(lambda: client.dbsize() == taken, 20, "they are kept")


def test_no_more_is_read_of_a_value_than_could_have_been_kept(cache: RedisCache, redis: RedisServer) -> None:
    results = Results()
    with redis.client() as client:
        client.setrange("large", 100 << 20, b"end")
    results.look_up(cache, "large")
    wait_until(lambda: "large" in results.found, 20, "it is looked up")
    assert len(results.found["large"] or b"") == MAX_VALUE + 1


def test_what_cannot_be_read_or_written_is_nothing(cache: RedisCache, redis: RedisServer) -> None:
    found: list[object] = []

    def fails(*given: bytes) -> bytes:
        raise ValueError("no answer")

    assert cache.insert(Insertion("k", fails, 1))
    assert insert(cache, "k", b"value")
    with redis.client() as client:
        wait_until(lambda: client.get("k") == b"value", 10, "the other one is kept")
    assert cache.look_up(LookUp("k", fails, found.append))
    wait_until(lambda: found == [None], 10, "it is looked up")
    assert cache.figures.failures == 2
    assert insert(cache, "after", b"value")
    with redis.client() as client:
        wait_until(lambda: client.get("after") == b"value", 10, "it goes on")


def test_the_end_waits_for_no_redis_that_hangs(redis: RedisServer) -> None:
    before = threading.active_count()
    cache = RedisCache(RedisSettings("127.0.0.1", redis.port, socket_timeout_ms=300))
    wait_until(lambda: cache.is_up, 10, "it is connected")
    redis.hold()
    results = Results()
    assert results.look_up(cache, "k")
    begun = time.monotonic()
    cache.close()
    assert time.monotonic() - begun < 20
    wait_until(lambda: threading.active_count() == before, 10, "its thread ends")
    assert results.found == {"k": None}
    assert not results.look_up(cache, "k")
    redis.go_on()


@pytest.mark.slow
def test_a_connection_that_is_lost_does_not_swallow_the_work_of_another(cache: RedisCache, redis: RedisServer) -> None:
    results = Results()
    with redis.client() as client:
        for n in range(50):
            # One of the two is lost at a time, and pauses.
            ids = [c["id"] for c in client.client_list() if int(c["id"]) != client.client_id()]
            client.client_kill_filter(_id=ids[0])
            if results.look_up(cache, f"k{n}"):
                wait_until(lambda n=n: f"k{n}" in results.found, 10, "it is looked up")  # type: ignore[misc]
            wait_until(lambda: len(client.client_list()) == 3, 10, "both are connected")
    assert results.found


def test_look_ups_that_nobody_waits_for_are_not_made(cache: RedisCache, redis: RedisServer) -> None:
    found: list[object] = []
    assert insert(cache, "k", b"value")
    with redis.client() as client:
        wait_until(lambda: client.get("k") == b"value", 10, "it is kept")
    assert cache.look_up(LookUp("k", lambda value: value, found.append, deadline_ns=1))
    assert cache.look_up(LookUp("k", lambda value: value, found.append, deadline_ns=time.monotonic_ns() + 10**12))
    wait_until(lambda: len(found) == 2, 10, "both are answered")
    assert sorted(found, key=str) == [None, b"value"]
