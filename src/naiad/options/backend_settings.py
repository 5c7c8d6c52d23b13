"""The names of ``--backend-config``: those that look like misspelt ones are remarked on.

Others are taken in silence: a Python-based backend may have any name, and the reference's backends have more settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from naiad.spelling import nearest_spelling

if TYPE_CHECKING:
    from naiad.options.kinds import BackendSetting

BACKENDS: Final = frozenset(
    {"fil", "identity", "keras", "onnxruntime", "openvino", "python", "pytorch", "tensorflow", "tensorrt"}
)
"""The backends that have settings."""
REFERENCE_ALONE: Final = frozenset({"auto-complete-config", "min-compute-capability", "shm-region-prefix-name"})
"""The reference's settings that no backend reads here."""
SETTINGS: Final = REFERENCE_ALONE | {
    *("accelerator-cache", "allow-pickle", "allow-soft-placement", "backend-directory", "CACHE_DIR"),
    *("coalesce-request-input", "compile-cache", "default-max-batch-size", "enable-global-threadpool"),
    *("environment-cache", "execute-timeout-seconds", "execution", "execution-policy", "gpu-memory-fraction"),
    *("memory-limit-mb", "plugins", "shm-default-byte-size", "shm-growth-byte-size", "stub-timeout-seconds"),
    *("thread-pool-size", "version", "version-compatible"),
}
"""The settings of all backends."""
_CUTOFF: Final = 0.75


def remarks_on_misspelt(given: Iterable[BackendSetting]) -> Iterator[str]:
    """A remark on each setting whose backend or name is not known and looks like one that is."""
    for setting in given:
        shown = f"{setting.backend},{setting.key}" if setting.backend else setting.key
        near_backend = _nearest(setting.backend, BACKENDS)
        near_key = _nearest(setting.key, SETTINGS)
        if near_backend or near_key:
            meant = ",".join(filter(None, (near_backend or setting.backend, near_key or setting.key)))
            yield f"--backend-config={shown} has no effect; did you mean {meant}?"


def _nearest(name: str, known: frozenset[str]) -> str | None:
    """The known name that an unknown one looks like, if any is near."""
    return None if name in known else nearest_spelling(name, known, _CUTOFF)
