"""The states of a model version, and the legal transitions."""

from __future__ import annotations

from enum import StrEnum


class ModelState(StrEnum):
    """Names as the repository index shows them; UNKNOWN is shown as no state at all."""

    UNKNOWN = ""
    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


NEXT: dict[ModelState, frozenset[ModelState]] = {
    ModelState.UNKNOWN: frozenset({ModelState.LOADING}),
    ModelState.LOADING: frozenset({ModelState.READY, ModelState.UNAVAILABLE}),
    ModelState.READY: frozenset({ModelState.UNLOADING}),
    ModelState.UNLOADING: frozenset({ModelState.UNAVAILABLE}),
    ModelState.UNAVAILABLE: frozenset({ModelState.LOADING}),
}
