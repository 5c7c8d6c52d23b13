"""Which GPUs the models of a server may use, and how full one may be when a model is loaded onto it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError
from naiad.gpus.usable import MINIMUM, NO_GPUS, UsableGpus

if TYPE_CHECKING:
    from naiad.gpus.driver import Gpu


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """The GPUs that models may use. None is looked for until a model may want one.

    Attributes:
        minimum: the smallest compute capability, such as "7.5" (``--min-supported-compute-capability``).
        limits: by number, the share of a GPU's memory above which no model is loaded onto it
            (``--model-load-gpu-limit``).
    """

    minimum: str = MINIMUM
    limits: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, minimum: str, limits: Iterable[str] = ()) -> GpuAccess:
        """The access that the two options ask for; of two limits of a GPU the last one counts."""
        pairs = (limit.partition(":") for limit in limits)
        return cls(minimum, {int(number): float(share or 0) for number, _, share in pairs})

    def usable(self) -> UsableGpus:
        """The GPUs that there are and that have the capability."""
        found = _gpus()
        # The processor-only machine pays for one look-up of the library.
        if not found:
            return UsableGpus(minimum=self.minimum) if self.minimum != MINIMUM else NO_GPUS
        least = _capability(self.minimum)
        ids = tuple(gpu.number for gpu in found if gpu.capability >= least)
        return UsableGpus(ids, self.minimum, ", ".join(str(gpu) for gpu in found if gpu.capability < least))

    def check_room(self, model: str, used: Iterable[int]) -> None:
        """Check that no GPU of ``used`` is fuller than its limit.

        Raises:
            ModelLoadError: one is, or nothing can tell.
        """
        limited = sorted(set(used) & self.limits.keys())
        if not limited:
            return
        # Imported here: most servers have no limits.
        from naiad.gpus.figures import used_share

        by_number = {gpu.number: gpu for gpu in _gpus()}
        for number in limited:
            share, limit = used_share(model, by_number[number]), self.limits[number]
            if share > limit:
                raise ModelLoadError(
                    f"can not create model '{model}': memory limit set for GPU {number} has exceeded, model loading is "
                    f"rejected: {share:.1%} of its memory is in use, and --model-load-gpu-limit={number}:{limit:g}"
                )


def uuid_of(number: int) -> str:
    """The identity of a GPU as the metrics show it, "" for one that is not there."""
    return next((f"GPU-{gpu.uuid}" for gpu in _gpus() if gpu.number == number), "")


def _gpus() -> tuple[Gpu, ...]:
    # Imported here: ctypes takes its time, and most servers have no model that may run on a GPU.
    from naiad.gpus.driver import gpus

    return gpus()


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


ANY_GPU: Final = GpuAccess()
