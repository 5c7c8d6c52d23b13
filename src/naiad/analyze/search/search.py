"""What a search is: it knows nothing of servers, so that it runs against recorded measurements as well."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from naiad.analyze.measurement import Measurement
from naiad.analyze.search.work import NOTHING, WorkLeft
from naiad.analyze.trial import AnalysisTrial


@dataclass(frozen=True, slots=True)
class MeasurementRequest:
    """One measurement that a search wants.

    Attributes:
        scale: how long its windows are, in shortest windows.
        left: what the search expects to want after it.
        stage: what it is for, in a few words.
    """

    trial: AnalysisTrial
    scale: int = 1
    left: WorkLeft = NOTHING
    stage: str = ""


Search = Generator[MeasurementRequest, Measurement, None]
Utility = Callable[[Measurement], float | None]
"""How good a measurement is: a difference of 0.05 is about 5%. None where it failed."""
