"""What is counted about the responses of a decoupled model, by their places: the first of each request, the second, ...

Source: protocol extension "statistics", ``response_stats``. All durations are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from naiad.telemetry.metrics.duration import Duration

MAX_PLACES: Final = 1024
"""Responses behind so many to the same request are not told apart, and not counted here: there may be any number."""


@dataclass(slots=True)
class ResponseStatistics:
    """The responses at one place. ``compute_output`` is counted for those that have outputs."""

    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    empty_response: Duration = field(default_factory=Duration)
    cancel: Duration = field(default_factory=Duration)

    def count_success(self, infer_ns: int, output_ns: int) -> None:
        """A response with outputs."""
        self.compute_infer.add(1, infer_ns)
        self.compute_output.add(1, output_ns)
        self.success.add(1, infer_ns + output_ns)

    def count_failure(self, infer_ns: int, output_ns: int) -> None:
        """An error; ``output_ns`` is 0 when it came before there were outputs."""
        self.compute_infer.add(1, infer_ns)
        if output_ns:
            self.compute_output.add(1, output_ns)
        self.fail.add(1, infer_ns + output_ns)

    def count_empty(self, infer_ns: int) -> None:
        """A response without outputs."""
        self.compute_infer.add(1, infer_ns)
        self.empty_response.add(1, infer_ns)

    def count_cancel(self, ns: int) -> None:
        """A response that does not come, since its request was given up."""
        self.cancel.add(1, ns)
