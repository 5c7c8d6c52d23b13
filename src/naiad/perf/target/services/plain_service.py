"""What services have in common that keep no counts, no traces and no regions of shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from naiad.perf.results import ServerParts
from naiad.perf.settings import TargetSettings
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.region_calls import RegionCalls
from naiad.shared_memory.region import RegionRef


class PlainService:
    """The base of their targets."""

    is_streaming = False

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings

    def change_trace(self, settings: Mapping[str, str]) -> None:
        """Refuse traces.

        Raises:
            TargetError: always.
        """
        raise TargetError(
            f"--service-kind={self._settings.service_kind} has no traces; leave the options --trace-* out"
        )

    def place_tensors(self, outputs: Mapping[str, RegionRef]) -> RegionCalls:
        """Refuse shared memory.

        Raises:
            TargetError: always.
        """
        raise TargetError(f"--service-kind={self._settings.service_kind} has no shared memory; leave it out")

    def statistics_request(self) -> None:
        """The service has no counts."""

    def read_statistics(self, body: bytes) -> ServerParts | None:
        """The service has no counts."""
        return None
