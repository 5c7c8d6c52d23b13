"""The settings of a response cache in Redis, ``--cache-config redis,<key>=<value>``.

Source: the reference's Redis cache. The names are its own, and so are the environment variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from naiad.options.kinds import INT32_MAX, integer, read_boolean

REDIS: Final = "redis"
ADDRESS_MISSING: Final = (
    "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' in the "
    "configuration - e.g. --cache-config redis,host=redis --cache-config redis,port=6379"
)
USERNAME_VARIABLE: Final = "TRITONCACHE_REDIS_USERNAME"
PASSWORD_VARIABLE: Final = "TRITONCACHE_REDIS_PASSWORD"
SECRET: Final = "password"
MAX_POOL: Final = 64
DEFAULT_SOCKET_MS: Final = 100
DEFAULT_CONNECT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """The address of Redis, its credentials and its timeouts.

    Attributes:
        socket_timeout_ms: the longest wait of a request for a look-up, in all; 0 stands for ``DEFAULT_SOCKET_MS``.
        connect_timeout_ms: the longest time to connect, for which no request waits.
        pool_size: the number of connections, each with a thread of its own.
        cert, key, cacert, cacert_dir: PEM files for TLS.
    """

    host: str
    port: int
    user: str = "default"
    password: str = field(default="", repr=False)
    db: int = 0
    connect_timeout_ms: int = DEFAULT_CONNECT_MS
    socket_timeout_ms: int = DEFAULT_SOCKET_MS
    pool_size: int = 1
    tls_enabled: bool = False
    cert: str = ""
    key: str = ""
    cacert: str = ""
    cacert_dir: str = ""

    @property
    def address(self) -> str:
        """``host:port`` as it is shown to people."""
        return f"{self.host}:{self.port}"


def _text(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError(f"Invalid option value. Got {text}")
    return text


def _host(text: str) -> str:
    if not text or any(c.isspace() or c in ",\0" for c in text):
        raise ValueError(f"Invalid option value. Got {text}; each setting needs a --cache-config of its own")
    return text


_READ: Final[Mapping[str, Callable[[str], Any]]] = {
    "host": _host,
    "port": integer(1, 65535).read,
    "user": _text,
    SECRET: _text,
    "db": integer(0).read,
    "connect_timeout": integer(0).read,
    "socket_timeout": integer(0).read,
    "pool_size": integer(1, MAX_POOL).read,
    # Accepted for compatibility: a request waits for its turn within ``socket_timeout``.
    "wait_timeout": integer(0, INT32_MAX).read,
    "tls_enabled": read_boolean,
    "cert": _text,
    "key": _text,
    "cacert": _text,
    "cacert_dir": _text,
    "sni": _text,
}
REDIS_KEYS: Final = tuple(_READ)


def check_setting(key: str, value: str) -> None:
    """Check one setting by itself; raises ValueError for a wrong one."""
    if key not in _READ:
        raise ValueError(f"the cache '{REDIS}' has no setting '{key}', only {', '.join(REDIS_KEYS)}")
    try:
        _READ[key](value)
    except ValueError as error:
        raise ValueError(f"{REDIS},{key}: {error}") from None


def redis_problems(given: Mapping[str, str]) -> Iterator[str]:
    """The conflicts among the settings."""
    if "host" not in given or "port" not in given:
        yield ADDRESS_MISSING
    if ("cert" in given) != ("key" in given):
        yield "--cache-config redis: cert and key go together, a certificate and its private key"
    if given.get("sni", given.get("host")) != given.get("host"):
        yield "--cache-config redis,sni: TLS asks for the name that host gives; leave sni out"


def redis_settings(given: Mapping[str, str], environment: Mapping[str, str]) -> RedisSettings:
    """The settings of ``given`` and of the environment; ``given`` wins. It must have no ``redis_problems``."""
    read = {key: _READ[key](value) for key, value in given.items()}
    tls = {key: read[key] for key in ("cert", "key", "cacert", "cacert_dir") if key in read}
    return RedisSettings(
        host=read["host"],
        port=read["port"],
        user=read.get("user") or environment.get(USERNAME_VARIABLE) or "default",
        password=read.get(SECRET) or environment.get(PASSWORD_VARIABLE, ""),
        db=read.get("db", 0),
        connect_timeout_ms=read.get("connect_timeout") or DEFAULT_CONNECT_MS,
        # In the reference 0 is no limit; here a request never waits for Redis without one.
        socket_timeout_ms=read.get("socket_timeout") or DEFAULT_SOCKET_MS,
        pool_size=read.get("pool_size", 1),
        tls_enabled=read.get("tls_enabled", bool(tls)),
        **tls,
    )
