"""What the trials of ``naiad perf advise`` found, and what follows."""

from __future__ import annotations

from dataclasses import dataclass, field

from naiad.perf.advise.gain import GainComparison
from naiad.perf.advise.trial import Tried


@dataclass(frozen=True, slots=True)
class SetupChange:
    """What one change of a configuration brings.

    Attributes:
        comparison: of the configuration with the change and the one without it; None where it was not tried.
        first, second: the configurations without and with the change.
        reason: why it was not tried; empty where it was.
    """

    comparison: GainComparison | None = None
    first: Tried | None = None
    second: Tried | None = None
    reason: str = ""

    @property
    def is_client_bound(self) -> bool:
        """Whether the client was the bottleneck, so that a gain could not show."""
        return any(tried is not None and tried.is_client_bound for tried in (self.first, self.second))


@dataclass(slots=True)
class Choice:
    """A configuration to serve with, and how many requests to keep in flight.

    Attributes:
        change: its gain over the configuration that was served.
    """

    tried: Tried
    in_flight: int
    change: SetupChange

    @property
    def rate(self) -> float:
        """Inferences a second."""
        return self.tried.rate(self.in_flight)

    @property
    def latency_ms(self) -> float:
        """The average latency, or that of the percentile that was asked for."""
        return self.tried.latency_ms(self.in_flight)


@dataclass(slots=True)
class Advice:
    """All that one run of ``naiad perf advise`` found.

    Attributes:
        machine: what describes the client's machine.
        tried: every configuration, the served one first.
        batching: whether dynamic batching gains, with the fewest instances.
        second_instance: whether a second instance of each group gains, with the better setting of batching.
        delay: whether dynamic batching makes a single request in flight faster or slower.
        most: what gives the most inferences, within the latency limit if there is one; None when nothing keeps it.
        least: what gives the least latency: one request in flight.
        is_interrupted: whether the user stopped the run before its end, so that there are no conclusions.
    """

    model: str
    rounds: int = 0
    command: tuple[str, ...] = ()
    protocol: str = "http"
    endpoint: str = ""
    machine: dict[str, str] = field(default_factory=dict)
    tried: list[Tried] = field(default_factory=list)
    batching: SetupChange = field(default_factory=SetupChange)
    second_instance: SetupChange = field(default_factory=SetupChange)
    delay: SetupChange = field(default_factory=SetupChange)
    most: Choice | None = None
    least: Choice | None = None
    is_interrupted: bool = False

    @property
    def served(self) -> Tried:
        """The configuration that the server had."""
        return self.tried[0]
