"""The options of the reference that this version does not have, so that they get a clear answer.

Delete a name here when the option is added to ``server.py``.
"""

from __future__ import annotations

SWITCHES = frozenset(
    {
        "allow-grpc",
        "allow-sagemaker",
        "allow-vertex-ai",
        "allow-client-shm",
        "model-namespacing",
        "reuse-grpc-port",
        "grpc-use-ssl",
        "grpc-use-ssl-mutual",
    }
)
"""Booleans whose feature is off here: they may be given as false."""

OTHERS = frozenset(
    {
        "repository-poll-secs",
        "load-model",
        "model-load-retry-count",
        "enable-peer-access",
        "http-header-forward-pattern",
        "http-restricted-api",
        "grpc-address",
        "grpc-port",
        "grpc-header-forward-pattern",
        "grpc-infer-thread-count",
        "grpc-infer-allocation-pool-size",
        "grpc-max-response-pool-size",
        "grpc-server-cert",
        "grpc-server-key",
        "grpc-root-cert",
        "grpc-infer-response-compression-level",
        "grpc-keepalive-time",
        "grpc-keepalive-timeout",
        "grpc-keepalive-permit-without-calls",
        "grpc-http2-max-pings-without-data",
        "grpc-http2-min-recv-ping-interval-without-data",
        "grpc-http2-max-ping-strikes",
        "grpc-max-connection-age",
        "grpc-max-connection-age-grace",
        "grpc-restricted-protocol",
        "sagemaker-port",
        "sagemaker-safe-port-range",
        "sagemaker-thread-count",
        "vertex-ai-port",
        "vertex-ai-thread-count",
        "vertex-ai-default-model",
        "trace-config",
        "cache-config",
        "cache-directory",
        "rate-limit",
        "rate-limit-resource",
        "pinned-memory-pool-byte-size",
        "cuda-memory-pool-byte-size",
        "cuda-virtual-address-size",
        "min-supported-compute-capability",
        "buffer-manager-thread-count",
        "host-policy",
        "model-load-gpu-limit",
        "backend-directory",
        "repoagent-directory",
        "response-cache-byte-size",
        "trace-file",
        "trace-level",
        "trace-rate",
        "trace-count",
        "trace-log-frequency",
    }
)
"""Options that are refused whatever their value."""

NOT_SERVED_YET = SWITCHES | OTHERS
"""Names without the leading dashes."""
