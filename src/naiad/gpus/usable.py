"""The GPUs that models may use, as the rules of a configuration see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINIMUM: Final = "7.5"
"""The default of ``--min-supported-compute-capability``."""


@dataclass(frozen=True, slots=True)
class UsableGpus:
    """The GPUs that models may use.

    Attributes:
        ids: their numbers, ascending, as the driver counts.
        minimum: the smallest compute capability of a usable one (``--min-supported-compute-capability``).
        left_out: the GPUs that are there and lack it, in words; "" for none.
    """

    ids: tuple[int, ...] = ()
    minimum: str = MINIMUM
    left_out: str = ""


NO_GPUS: Final = UsableGpus()
