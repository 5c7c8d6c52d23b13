"""Routes of a model: which of its versions serves a request that names an alias, or no version at all.

They come from ``parameters`` of a configuration (``route.alias.<name>``, ``route.split``, ``route.shadow``,
``route.shadow.tolerance``) or as JSON over the API; both are read here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from naiad.errors import InvalidArgumentError

PREFIX: Final = "route."
ALIAS_PATTERN: Final = r"[A-Za-z][A-Za-z0-9_.-]*"
"""How the name of an alias looks: never like a number."""
MAX_ALIAS_LENGTH: Final = 64
MAX_ALIASES: Final = 64
MAX_SHARES: Final = 16
MAX_WEIGHT: Final = 1_000_000
MAX_VERSION: Final = 2**63 - 1

_ALIAS: Final = re.compile(ALIAS_PATTERN)
_ALIAS_KEY: Final = f"{PREFIX}alias."
_SPLIT_KEY: Final = f"{PREFIX}split"
_SHADOW_KEY: Final = f"{PREFIX}shadow"
_TOLERANCE_KEY: Final = f"{PREFIX}shadow.tolerance"
_FIELDS: Final = ("aliases", "split", "shadow")


@dataclass(frozen=True, slots=True)
class Shadow:
    """A version that gets a copy of a ``fraction`` (0 to 1) of the requests; its responses are compared and dropped.

    Responses differ when two numbers in the same place are further apart than ``tolerance``.
    """

    version: int
    fraction: float = 1.0
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Routes:
    """Where the requests of one model go. ``split`` has versions with their weights; empty: the highest version."""

    aliases: Mapping[str, int] = field(default_factory=dict)
    split: tuple[tuple[int, int], ...] = ()
    shadow: Shadow | None = None

    def __bool__(self) -> bool:
        return bool(self.aliases or self.split or self.shadow)

    def named(self) -> Iterator[tuple[int, str]]:
        """Each version that is named, and by what."""
        for alias, version in self.aliases.items():
            yield version, f"alias '{alias}'"
        for version, _ in self.split:
            yield version, "the split"
        if self.shadow is not None:
            yield self.shadow.version, "the shadow"

    def as_json(self) -> dict[str, Any]:
        """The form that the API shows and takes."""
        shadow = self.shadow
        return {
            "aliases": {name: str(version) for name, version in self.aliases.items()},
            "split": {str(version): weight for version, weight in self.split},
            "shadow": None
            if shadow is None
            else {"version": str(shadow.version), "fraction": shadow.fraction, "tolerance": shadow.tolerance},
        }


NO_ROUTES: Final = Routes()


def routes_of_parameters(values: Mapping[str, str]) -> Routes:
    """The routes in the ``parameters`` of a configuration.

    Raises:
        InvalidArgumentError: one of them is wrong; the text names it.
    """
    for key in values:
        known = key in (_SPLIT_KEY, _SHADOW_KEY, _TOLERANCE_KEY) or key.startswith(_ALIAS_KEY)
        if key.startswith(PREFIX) and not known:
            raise InvalidArgumentError(
                f"parameter '{key}' is no route: expected '{_ALIAS_KEY}<name>', '{_SPLIT_KEY}', '{_SHADOW_KEY}' or "
                f"'{_TOLERANCE_KEY}'"
            )
    aliases = {
        key.removeprefix(_ALIAS_KEY): _version(text, f"parameter '{key}'")
        for key, text in values.items()
        if key.startswith(_ALIAS_KEY)
    }
    return _checked(Routes(aliases, _split_of_text(values.get(_SPLIT_KEY, "")), _shadow_of_texts(values)))


def changed_by(routes: Routes, change: Mapping[str, Any]) -> Routes:
    """``routes`` with a change of the API: ``aliases`` are added, or removed with null; the others are replaced.

    Raises:
        InvalidArgumentError: the change is wrong; the text says what.
    """
    for name in change:
        if name not in _FIELDS:
            raise InvalidArgumentError(f"unknown field '{name}' of routes, expected {', '.join(_FIELDS)}")
    changed = routes
    if "aliases" in change:
        changed = replace(changed, aliases=_changed_aliases(routes.aliases, change["aliases"]))
    if "split" in change:
        changed = replace(changed, split=_split_of_json(change["split"]))
    if "shadow" in change:
        changed = replace(changed, shadow=_shadow_of_json(change["shadow"]))
    return _checked(changed)


def version_of(value: object, what: str) -> int:
    """A version as the API takes it: a number, or a text with one.

    Raises:
        InvalidArgumentError: it is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InvalidArgumentError(f'{what} must be a version such as 2 or "2", found {type(value).__name__}')
    return _version(value, what)


def _version(text: str, what: str) -> int:
    # Bounded first: Python refuses to read thousands of digits.
    number = int(text) if len(text) < 20 and text.isascii() and text.isdigit() else 0
    if not 0 < number <= MAX_VERSION:
        raise InvalidArgumentError(f'{what} is "{text[:64]}", expected the number of a version, 1 or more')
    return number


def _checked(routes: Routes) -> Routes:
    for name in routes.aliases:
        if len(name) > MAX_ALIAS_LENGTH or not _ALIAS.fullmatch(name):
            raise InvalidArgumentError(
                f"'{name[:MAX_ALIAS_LENGTH]}' cannot be an alias: expected a letter, then up to {MAX_ALIAS_LENGTH - 1} "
                "letters, digits, '_', '.' or '-'"
            )
    if len(routes.aliases) > MAX_ALIASES:
        raise InvalidArgumentError(f"{len(routes.aliases)} aliases are too many: a model has up to {MAX_ALIASES}")
    if len(routes.split) > MAX_SHARES:
        raise InvalidArgumentError(f"a split has up to {MAX_SHARES} versions, found {len(routes.split)}")
    versions = [version for version, _ in routes.split]
    if len(set(versions)) < len(versions):
        raise InvalidArgumentError(f"a version stands twice in the split: {', '.join(map(str, versions))}")
    if routes.shadow is not None and versions == [routes.shadow.version]:
        raise InvalidArgumentError(f"version {versions[0]} gets all requests: it cannot be its own shadow")
    return routes


def _changed_aliases(aliases: Mapping[str, int], change: object) -> dict[str, int]:
    if change is None:
        return {}
    if not isinstance(change, dict):
        raise InvalidArgumentError("'aliases' must be an object of names and versions, or null for none")
    found = dict(aliases)
    for name, version in change.items():
        if version is None:
            found.pop(name, None)
        else:
            found[name] = version_of(version, f"alias '{name[:MAX_ALIAS_LENGTH]}'")
    return found


def _split_of_text(text: str) -> tuple[tuple[int, int], ...]:
    if not text.strip():
        return ()
    what = f"parameter '{_SPLIT_KEY}'"
    found: list[tuple[int, int]] = []
    for part in text.split(","):
        version, colon, weight = (piece.strip() for piece in part.partition(":"))
        if not colon or not weight.isascii() or not weight.isdigit() or len(weight) > 9:
            raise InvalidArgumentError(f'{what} has "{part.strip()[:64]}", expected version:weight such as 1:90,2:10')
        found.append((_version(version, what), _weight(int(weight), what)))
    return tuple(found)


def _split_of_json(value: object) -> tuple[tuple[int, int], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise InvalidArgumentError("'split' must be an object of versions and weights, or null for none")
    return tuple(
        (_version(version, "a version of 'split'"), _weight(weight, "'split'")) for version, weight in value.items()
    )


def _weight(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_WEIGHT:
        raise InvalidArgumentError(
            f"a weight in {what} must be a whole number from 1 to {MAX_WEIGHT}; leave out who gets nothing"
        )
    return value


def _shadow_of_texts(values: Mapping[str, str]) -> Shadow | None:
    text = values.get(_SHADOW_KEY, "").strip()
    if not text:
        if _TOLERANCE_KEY in values:
            raise InvalidArgumentError(f"parameter '{_TOLERANCE_KEY}' has no effect without '{_SHADOW_KEY}'")
        return None
    version, _, fraction = text.partition(":")
    what = f"parameter '{_SHADOW_KEY}'"
    return Shadow(
        _version(version.strip(), what),
        _fraction(_float(fraction or "1", what), what),
        _tolerance(_float(values.get(_TOLERANCE_KEY, "0"), f"parameter '{_TOLERANCE_KEY}'")),
    )


def _shadow_of_json(value: object) -> Shadow | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not {"version"} <= value.keys() <= {"version", "fraction", "tolerance"}:
        raise InvalidArgumentError(
            "'shadow' must be an object with 'version', 'fraction' and 'tolerance', or null for none"
        )
    return Shadow(
        version_of(value["version"], "'version' of 'shadow'"),
        _fraction(value.get("fraction", 1.0), "'fraction' of 'shadow'"),
        _tolerance(value.get("tolerance", 0.0)),
    )


def _float(text: str, what: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidArgumentError(f'{what} has "{text[:64]}", expected a number') from None


def _fraction(value: object, what: str) -> float:
    # Written so that NaN is refused, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidArgumentError(f"{what} must say a fraction above 0 and up to 1")
    return float(value)


def _tolerance(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0 or not math.isfinite(value):
        raise InvalidArgumentError("the tolerance of a shadow must be a number of 0 or more")
    return float(value)
