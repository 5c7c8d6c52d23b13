"""Power, use and memory of the GPUs, read by the package ``nvidia-ml-py``.

Source: the NVML API, section "Device Queries". NVML counts watts in thousandths and energy in thousandths of a joule.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import ModelLoadError
from naiad.extras import how_to_install

if TYPE_CHECKING:
    from naiad.gpus.driver import Gpu

logger = logging.getLogger("naiad")

STOP_S: Final = 5.0
"""How long ``GpuFigures.stop`` waits for a driver that does not answer."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """The figures of one GPU; None for one that it does not report.

    Attributes:
        uuid: its identity, such as ``GPU-1f...``.
        power_w: what it draws now, in watts.
        power_limit_w: what it may draw.
        energy_j: what it has used since the first sample, in joules.
        utilization: the share of the time in which it was busy lately, 0 to 1.
        memory_total_bytes: all of its memory.
        memory_used_bytes: what is in use, by whichever process.
    """

    uuid: str
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    utilization: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


class NvmlReader:
    """NVML, initialised.

    Raises:
        ImportError: ``nvidia-ml-py`` is not installed.
        OSError: there is no driver, or it fails.
    """

    def __init__(self) -> None:
        import pynvml

        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error
        self._handles: dict[str, Any] = {}
        self._energy_before: dict[str, float] = {}

    def close(self) -> None:
        """Let go of the driver."""
        self._query(self._nvml.nvmlShutdown)

    def read(self, gpu: Gpu) -> GpuSample:
        """The figures of a GPU."""
        nvml, handle = self._nvml, self._handle(gpu)
        if handle is None:
            return GpuSample(f"GPU-{gpu.uuid}")
        memory = self._query(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = self._query(nvml.nvmlDeviceGetUtilizationRates, handle)
        energy_j = _thousandth(self._query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle))
        if energy_j is not None:
            energy_j = round(energy_j - self._energy_before.setdefault(gpu.uuid, energy_j), 3)
        return GpuSample(
            f"GPU-{gpu.uuid}",
            _thousandth(self._query(nvml.nvmlDeviceGetPowerUsage, handle)),
            _thousandth(self._query(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            energy_j,
            None if rates is None else rates.gpu / 100,
            None if memory is None else int(memory.total),
            None if memory is None else int(memory.used),
        )

    def _handle(self, gpu: Gpu) -> Any:
        # By identity: NVML also counts the GPUs that CUDA_VISIBLE_DEVICES hides. A part of a card has another prefix.
        if gpu.uuid not in self._handles:
            names = (f"{prefix}-{gpu.uuid}" for prefix in ("GPU", "MIG"))
            found = (self._query(self._nvml.nvmlDeviceGetHandleByUUID, name) for name in names)
            self._handles[gpu.uuid] = next((handle for handle in found if handle is not None), None)
        return self._handles[gpu.uuid]

    def _query(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            # Not every card reports everything.
            return None


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def used_share(model: str, gpu: Gpu) -> float:
    """The share of a GPU's memory that is in use, 0 to 1.

    Raises:
        ModelLoadError: nothing can tell; the text says what is missing.
    """
    try:
        reader = NvmlReader()
    except (ImportError, OSError) as error:
        raise ModelLoadError(
            f"model '{model}': --model-load-gpu-limit needs to know how full GPU {gpu.number} is, and {_missing(error)}"
        ) from error
    try:
        found = reader.read(gpu)
    finally:
        reader.close()
    if not found.memory_total_bytes or found.memory_used_bytes is None:
        raise ModelLoadError(f"model '{model}': --model-load-gpu-limit: {gpu} does not report its memory; remove it")
    return found.memory_used_bytes / found.memory_total_bytes


class GpuFigures:
    """The last figures of all GPUs, which a thread reads anew in every interval: a driver may take its time.

    Where there is no GPU, or nothing to read it with, no thread stays. Made and stopped by the server.
    """

    def __init__(self, interval_ms: int) -> None:
        self.samples: tuple[GpuSample, ...] = ()
        self._interval_s = interval_ms / 1000
        self._begun = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="naiad-gpu-figures", daemon=True)

    def start(self) -> None:
        """Begin to read, unless that was done."""
        if not self._begun:
            self._begun = True
            self._thread.start()

    def stop(self) -> None:
        """Read no more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        # Imported here, in the thread: to look for GPUs may take a second.
        from naiad.gpus.driver import gpus

        found = gpus()
        if not found:
            return
        try:
            reader = NvmlReader()
        except (ImportError, OSError) as error:
            logger.warning("the metrics have no figures of GPUs: %s", _missing(error))
            return
        try:
            while not self._over.is_set():
                # One assignment: the event loop reads it at any time.
                self.samples = tuple(reader.read(gpu) for gpu in found)
                self._over.wait(self._interval_s)
        finally:
            reader.close()


def _missing(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"the package nvidia-ml-py is not installed; run: {how_to_install('gpu')}"
    return f"NVML, the driver's library for that (libnvidia-ml.so.1), does not work: {error}"
