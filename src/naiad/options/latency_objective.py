"""A latency objective: ``--slo`` and the parameter ``slo`` of a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import Kind

PARAMETER: Final = "slo"
"""The parameter of a model that has its own objective."""
OFF: Final = "off"
"""The value of that parameter for a model that is not to be tuned."""
MAX_INSTANCES: Final = 64
"""The most instances that an objective may name."""
_EXPECTED: Final = "'p99=<time>', as in p99=20ms, with ',instances=<most instances>' behind it if wanted"
_LATENCY: Final = re.compile(
    r"p(?P<whole>[0-9]{1,2})(?:\.(?P<part>[0-9]{1,2}))?="
    r"(?P<time>[0-9]{1,6}(?:\.[0-9]{1,3})?)(?P<unit>us|ms|s)"
)
_COUNT: Final = re.compile(r"instances=(?P<most>[0-9]{1,3})")
_NS: Final = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class LatencyObjective:
    """A share of the requests has its responses within a time.

    Attributes:
        quantile: the share, over 0.5 and below 1.
        limit_ns: the time in the server, from the arrival of a request to its response.
        max_instances: the most instances that the server may give a model for it; 0 for what the processor suggests.
    """

    quantile: float
    limit_ns: int
    max_instances: int = 0

    def __str__(self) -> str:
        """As it is written on the command line."""
        unit = next(name for name in ("s", "ms", "us") if self.limit_ns >= _NS[name] or name == "us")
        most = f",instances={self.max_instances}" if self.max_instances else ""
        return f"p{self.quantile * 100:g}={self.limit_ns / _NS[unit]:g}{unit}{most}"


def read_objective(text: str) -> LatencyObjective:
    """The objective that a text states.

    Raises:
        ValueError: it states none; the error's text says what was expected.
    """
    latency, mark, rest = text.strip().partition(",")
    found, most = _LATENCY.fullmatch(latency), _COUNT.fullmatch(rest)
    if found is None or (mark and most is None):
        raise ValueError(f'expected {_EXPECTED}. Got "{text[:64]}"')
    quantile = float(f"{found['whole']}.{found['part'] or '0'}") / 100
    limit_ns = round(float(found["time"]) * _NS[found["unit"]])
    instances = int(most["most"]) if most else 0
    if not quantile >= 0.5 or limit_ns < _NS["us"]:
        raise ValueError(f'expected p50 to p99.99 and a time of at least 1us. Got "{text[:64]}"')
    if most and not 1 <= instances <= MAX_INSTANCES:
        raise ValueError(f'expected 1 to {MAX_INSTANCES} instances. Got "{text[:64]}"')
    return LatencyObjective(quantile, limit_ns, instances)


def _checked(text: str) -> str:
    read_objective(text)
    return text


LATENCY_OBJECTIVE: Final = Kind("<quantile>=<time>", _EXPECTED, _checked)
