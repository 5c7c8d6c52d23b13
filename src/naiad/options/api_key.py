"""``<name> <scope>,... sha256:<hash> [rate=<requests per second>] [burst=<requests>]``: one API key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from naiad.options.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCOPES: Final = ("infer", "manage", "observe")
LINE_FORMAT: Final = "<name> <scope>,... sha256:<hash> [rate=<requests per second>] [burst=<requests>]"
MAX_RATE: Final = 1_000_000
MAX_BURST: Final = 1_000_000

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_RATE = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,6})?")
_BURST = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key, of which only the hash is stored.

    Attributes:
        name: the name of the key in texts and logs.
        scopes: the parts of the server that the key opens.
        digest: the SHA-256 of the key's UTF-8 text.
        per_second: the most requests per second; None for no limit.
        burst: the most requests that may come at once.
    """

    name: str
    scopes: frozenset[str]
    digest: bytes = field(repr=False)
    per_second: float | None = None
    burst: int = 1

    def __str__(self) -> str:
        return f"{self.name} {','.join(sorted(self.scopes))}"


def read_api_key(text: str) -> ApiKey:
    """The key that ``text`` describes.

    Raises:
        ValueError: the text is malformed; the error never repeats the key or its hash.
    """
    words = text.split()
    if len(words) < 3:
        raise ValueError(f"an API key has at least a name, scopes and a hash; {len(words)} words were found")
    name, scopes, hashed, *limits = words
    # The text does not repeat the word: in a line that is out of order it may be the key.
    if not _NAME.fullmatch(name):
        raise ValueError("the name of an API key has 1 to 64 letters, digits or any of . _ @ -")
    found = _HASH.fullmatch(hashed)
    if found is None:
        raise ValueError(
            f"API key {name}: the third word has to be sha256: and 64 hexadecimal digits, the hash of the key: "
            "printf %s KEY | sha256sum"
        )
    per_second, burst = _read_limits(name, limits)
    return ApiKey(name, _read_scopes(name, scopes), bytes.fromhex(found[1]), per_second, burst)


def _read_scopes(name: str, text: str) -> frozenset[str]:
    scopes = frozenset(text.split(","))
    for scope in sorted(scopes - set(SCOPES)):
        raise ValueError(f"API key {name}: unknown scope '{scope}'; there are {', '.join(SCOPES)}")
    return scopes


def _read_limits(name: str, words: list[str]) -> tuple[float | None, int]:
    given: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        known = {"rate": _RATE, "burst": _BURST}.get(key)
        if known is None or key in given or not known.fullmatch(value):
            raise ValueError(f"API key {name}: cannot read '{word}'; a limit is rate=<number> and burst=<number>")
        given[key] = value
    if "rate" not in given:
        if given:
            raise ValueError(f"API key {name}: burst needs a rate beside it")
        return None, 1
    rate = float(given["rate"])
    burst = int(given.get("burst", max(1, int(rate))))
    if not 0 < rate <= MAX_RATE or not 0 < burst <= MAX_BURST:
        raise ValueError(f"API key {name}: rate and burst lie above 0 and up to {MAX_RATE}")
    return rate, burst


def repeated_keys(keys: Iterable[ApiKey]) -> Iterator[str]:
    """The conflicts among ``keys``."""
    names: set[str] = set()
    digests: dict[bytes, str] = {}
    for key in keys:
        if key.name in names:
            yield f"API key {key.name} is given more than once; each name stands for one key"
        elif key.digest in digests:
            yield f"the API keys {digests[key.digest]} and {key.name} have the same hash; make a new key for one"
        names.add(key.name)
        digests[key.digest] = key.name


API_KEY = Kind("<api key>", LINE_FORMAT, read_api_key)
