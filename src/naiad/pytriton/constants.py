"""Default ports, times and names."""

from __future__ import annotations

from typing import Final

DEFAULT_HTTP_PORT: Final = 8000
DEFAULT_GRPC_PORT: Final = 8001
DEFAULT_METRICS_PORT: Final = 8002
DEFAULT_TRITON_STARTUP_TIMEOUT_S: Final = 120
TRITON_LOCAL_IP: Final = "127.0.0.1"
TRITON_CONTEXT_FIELD_NAME: Final = "triton_context"
TRITON_ACCESS_HEADER: Final = "triton-access-token"
