"""The values of ``--metrics-config``, with the names of the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import Kind, read_boolean

COUNTERS: Final = "counter_latencies"
SUMMARIES: Final = "summary_latencies"
HISTOGRAMS: Final = "histogram_latencies"
QUANTILES: Final = "summary_quantiles"
_NAMES: Final = (COUNTERS, SUMMARIES, HISTOGRAMS, QUANTILES)
_MAX_QUANTILES: Final = 32

MetricsValue = bool | tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class MetricsSetting:
    """A ``--metrics-config`` value: a switch, or the quantiles of summaries as pairs of a share and an error."""

    name: str
    value: MetricsValue

    def __str__(self) -> str:
        """As it is written on the command line."""
        if isinstance(self.value, bool):
            return f"{self.name}={str(self.value).lower()}"
        return f"{self.name}={','.join(f'{share:g}:{error:g}' for share, error in self.value)}"


def _read(text: str) -> MetricsSetting:
    name, mark, value = text.partition("=")
    if not mark:
        raise ValueError(f"Invalid option value. Got {text}")
    if name not in _NAMES:
        raise ValueError(f"unknown setting {name!r}, known ones are {', '.join(_NAMES)}")
    return MetricsSetting(name, _quantiles(value) if name == QUANTILES else read_boolean(value))


def _quantiles(text: str) -> tuple[tuple[float, float], ...]:
    pairs = text.split(",")
    if len(pairs) > _MAX_QUANTILES:
        raise ValueError(f"summary_quantiles has {len(pairs)} quantiles, at most {_MAX_QUANTILES} are allowed")
    found = tuple(map(_pair, pairs))
    if len({share for share, _ in found}) < len(found):
        raise ValueError(f"summary_quantiles names a quantile twice: {text!r}")
    return found


def _pair(text: str) -> tuple[float, float]:
    share, _, error = text.partition(":")
    try:
        found = float(share), float(error)
    except ValueError:
        found = (-1.0, -1.0)
    # The comparisons refuse NaN as well.
    if not (0 <= found[0] <= 1 and 0 <= found[1] <= 1):
        raise ValueError(f"summary_quantiles: {text!r} is not <quantile>:<error>, two numbers from 0 to 1")
    return found


METRICS_SETTING: Final = Kind(
    "<setting>=<value>",
    "counter_latencies=<boolean>, summary_latencies=<boolean>, histogram_latencies=<boolean> or "
    "summary_quantiles=<quantile>:<error>[,<quantile>:<error>]",
    _read,
)
