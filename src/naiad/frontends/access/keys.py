"""The API keys that a server knows, and the search for a caller's key."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from naiad.errors import OptionError, RateLimitError
from naiad.frontends.access.rate import TokenBucket
from naiad.options.api_key import LINE_FORMAT, ApiKey, read_api_key, repeated_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from naiad.clock import Clock

MAX_FILE_BYTES: Final = 1 << 20
_NS_PER_S: Final = 1_000_000_000


class KnownKey:
    """One key with the used part of its rate limit, counted over all connections and both protocols."""

    __slots__ = ("_bucket", "key")

    def __init__(self, key: ApiKey, clock: Clock) -> None:
        self.key = key
        self._bucket = None if key.per_second is None else TokenBucket(key.per_second, key.burst, clock)

    @property
    def is_limited(self) -> bool:
        """Whether its requests are counted."""
        return self._bucket is not None

    def take(self) -> None:
        """Count one request.

        Raises:
            RateLimitError: it is beyond the limit.
        """
        wait_ns = self._bucket.take() if self._bucket is not None else 0
        if wait_ns:
            retry_s = math.ceil(wait_ns / _NS_PER_S)
            raise RateLimitError(
                f"the API key '{self.key.name}' is beyond its limit of {self.key.per_second:g} requests per second; "
                f"try again in {retry_s} s",
                retry_s,
            )


class KeyRing:
    """All keys by their hash.

    A shown key is hashed twice, the second time with a secret of this process, so that the time of the look-up tells
    nothing about the known hashes. The hashes themselves are compared in constant time.
    """

    def __init__(self, keys: Iterable[ApiKey], clock: Clock) -> None:
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._known: dict[bytes, KnownKey] = {}
        self.replace(keys)

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Replace all keys by ``keys``; an unchanged key keeps the used part of its limit."""
        before = self._known
        self._known = {}
        for key in keys:
            blinded = self._blinded(key.digest)
            kept = before.get(blinded)
            self._known[blinded] = kept if kept is not None and kept.key == key else KnownKey(key, self._clock)

    def find(self, shown: str) -> KnownKey | None:
        """The key whose text is ``shown``, as it came in a header; None when there is none."""
        digest = hashlib.sha256(shown.encode("latin-1", "replace")).digest()
        found = self._known.get(self._blinded(digest))
        return found if found is not None and hmac.compare_digest(found.key.digest, digest) else None

    def _blinded(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")


def read_keys(given: Iterable[ApiKey], file: str) -> tuple[ApiKey, ...]:
    """The keys that were ``given`` and those of ``file``, a line for each; "" for no file.

    Raises:
        OptionError: the file cannot be read, a line of it is wrong, or two keys are the same.
    """
    keys = (*given, *(_read_file(Path(file)) if file else ()))
    for problem in repeated_keys(keys):
        raise OptionError(f"--api-key and --api-key-file: {problem}")
    return keys


def _read_file(file: Path) -> list[ApiKey]:
    keys: list[ApiKey] = []
    for number, line in enumerate(_text(file).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            keys.append(read_api_key(line))
        except ValueError as error:
            raise OptionError(f"{file}:{number}: {error}. Expected: {LINE_FORMAT}") from None
    if not keys:
        raise OptionError(
            f"--api-key-file: {file} holds no key; expected lines with {LINE_FORMAT}, or leave the option out"
        )
    return keys


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            # One character more than allowed shows that the file is too large, whatever its size.
            text = opened.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise OptionError(f"--api-key-file: cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"--api-key-file: {file} is no text in UTF-8 (byte {error.start})") from error
    if len(text) > MAX_FILE_BYTES:
        raise OptionError(f"--api-key-file: {file} is larger than {MAX_FILE_BYTES} bytes; is it the right file?")
    return text
