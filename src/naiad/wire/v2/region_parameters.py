"""The parameters of an input or output that lies in a shared-memory region.

Source: the protocol's "System Shared Memory Extension".
"""

from __future__ import annotations

from typing import Final

from naiad.shared_memory.region import RegionRef

REGION: Final = "shared_memory_region"
REGION_OFFSET: Final = "shared_memory_offset"
REGION_SIZE: Final = "shared_memory_byte_size"


def region_parameters(place: RegionRef) -> dict[str, str | int]:
    """The parameters for a place in a region."""
    found: dict[str, str | int] = {REGION: place.region, REGION_SIZE: place.byte_size}
    if place.offset:
        found[REGION_OFFSET] = place.offset
    return found
