"""The options of the reference that this version does not have, so that they get a clear answer.

Delete a name here when the option is added to ``server.py``.
"""

from __future__ import annotations

SWITCHES = frozenset(
    {
        "allow-sagemaker",
        "allow-vertex-ai",
    }
)
"""Booleans whose feature is off here: they may be given as false."""

OTHERS = frozenset(
    {
        "enable-peer-access",
        "sagemaker-port",
        "sagemaker-safe-port-range",
        "sagemaker-thread-count",
        "vertex-ai-port",
        "vertex-ai-thread-count",
        "vertex-ai-default-model",
        "pinned-memory-pool-byte-size",
        "cuda-memory-pool-byte-size",
        "cuda-virtual-address-size",
        "min-supported-compute-capability",
        "buffer-manager-thread-count",
        "host-policy",
        "model-load-gpu-limit",
    }
)
"""Options that are refused whatever their value."""

NOT_SERVED_YET = SWITCHES | OTHERS
"""Names without the leading dashes."""
