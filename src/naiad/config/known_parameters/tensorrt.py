"""Parameters of TensorRT plans. Source: the README of the reference's tensorrt backend."""

from __future__ import annotations

from naiad.config.known_parameters.parameter import KnownParameter

PARAMETERS = (
    KnownParameter(
        "execution_context_allocation_strategy",
        "STATIC takes memory for the largest profile, ON_PROFILE_CHANGE for the one in use",
    ),
)
