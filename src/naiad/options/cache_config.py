"""The settings of the response cache, ``--cache-config <cache>,<key>=<value>``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import INT64_MAX, Kind, integer
from naiad.options.redis_config import REDIS, SECRET, RedisSettings, check_setting, redis_problems, redis_settings

LOCAL: Final = "local"
SMALLEST_BYTES: Final = 1
_SETTING: Final = re.compile(r"(?P<cache>[^,=]+),(?P<key>[^,=]+)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """One ``--cache-config`` value."""

    cache: str
    key: str
    value: str

    def __str__(self) -> str:
        """As it is written on the command line, without a password."""
        return f"{self.cache},{self.key}={'***' if self.key == SECRET else self.value}"


def _read(text: str) -> CacheSetting:
    found = _SETTING.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid option value. Got {text}")
    if found["cache"] == REDIS:
        check_setting(found["key"], found["value"])
        return CacheSetting(found["cache"], found["key"], found["value"])
    if found["cache"] != LOCAL:
        raise ValueError(f"there is no cache '{found['cache']}', only '{LOCAL}' and '{REDIS}'")
    if found["key"] != "size":
        raise ValueError(f"the cache '{LOCAL}' has no setting '{found['key']}', only 'size'")
    _read_size(found["value"])
    return CacheSetting(found["cache"], found["key"], found["value"])


def _read_size(text: str) -> int:
    size: int = integer(SMALLEST_BYTES, INT64_MAX).read(text)
    return size


def _read_bytes(text: str) -> CacheSetting:
    _read_size(text)
    return CacheSetting(LOCAL, "size", text)


CACHE_SETTING: Final = Kind(
    "<setting>", f"local,size=<bytes> with {SMALLEST_BYTES} bytes or more, or redis,<key>=<value>", _read
)
CACHE_BYTES: Final = Kind("<integer>", f"a number of bytes, {SMALLEST_BYTES} or more", _read_bytes)


def local_cache_bytes(settings: Sequence[CacheSetting]) -> int:
    """The size of the local cache, 0 for none; the last setting counts."""
    return next((int(s.value) for s in reversed(settings) if (s.cache, s.key) == (LOCAL, "size")), 0)


def redis_cache(settings: Sequence[CacheSetting], environment: Mapping[str, str]) -> RedisSettings | None:
    """The settings of the cache in Redis, None for no such cache; of a key the last counts."""
    given = _redis(settings)
    return redis_settings(given, environment) if given else None


def _redis(settings: Sequence[CacheSetting]) -> dict[str, str]:
    return {s.key: s.value for s in settings if s.cache == REDIS}


def cache_problems(settings: Sequence[CacheSetting], deprecated: Sequence[CacheSetting]) -> Iterator[str]:
    """The conflicts among the settings."""
    if settings and deprecated:
        yield "--cache-config and --response-cache-byte-size are incompatible flags: leave the second out"
    if len({setting.cache for setting in settings}) > 1:
        yield "found multiple cache configurations, but only a single cache is currently supported"
    elif given := _redis(settings):
        yield from redis_problems(given)
