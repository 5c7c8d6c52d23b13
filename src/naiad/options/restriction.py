"""``<feature>,...:<key>=<value>``: features of the protocol that are served only to callers that send a header.

Source: the reference's "Limit endpoint access" (restricted features).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from naiad.options.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FEATURES: Final = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""The parts that the protocol is divided into."""

# The key is a token of RFC 9110, as the name of every header.
_GROUP = re.compile(r"(?P<features>[^:]*):(?P<key>[!#$%&'*+\-.^_`|~0-9A-Za-z]+)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Restriction:
    """One group of features and the header that opens them; its text leaves the value out."""

    features: tuple[str, ...]
    key: str
    value: str = field(repr=False)

    def __str__(self) -> str:
        # The options are logged, and many people read a log.
        return f"{','.join(self.features)}:{self.key}=..."


def restriction(option: str, kind: str) -> Kind:
    """The kind of ``option``, whose features are called ``kind`` in the texts of errors: ``api`` or ``protocol``."""

    def read(text: str) -> Restriction:
        found = _GROUP.fullmatch(text)
        if found is None:
            raise ValueError(f"--{option} option format is '<config name>:<setting>=<value>'. Got {text}")
        # HTTP does not count the spaces around a header's value, so no request could have them.
        value = found["value"].strip(" \t")
        if not value or not value.isprintable():
            raise ValueError("the value is empty, or holds characters that no header can")
        features = tuple(found["features"].split(","))
        for feature in features:
            if feature not in FEATURES:
                raise ValueError(f"unknown restricted {kind} '{feature}'")
        return Restriction(features, found["key"], value)

    return Kind(f"<{kind},...>:<key>=<value>", f"<{kind},...>:<key>=<value> with any of {', '.join(FEATURES)}", read)


def repeated_features(groups: Iterable[Restriction], kind: str) -> Iterator[str]:
    """The conflicts among ``groups``."""
    seen: set[str] = set()
    for feature in (feature for group in groups for feature in group.features):
        if feature in seen:
            yield f"restricted {kind} '{feature}' can not be specified in multiple config groups"
        seen.add(feature)
