"""A line in the log for every gRPC call, for ``--log-verbose`` 1 and above."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from naiad.frontends.grpc.rpc.call import Body, Method, Receiver, RpcCall, Streaming, Unary
from naiad.telemetry.logs.server_log import request_log, verbose, verbose_level
from naiad.wire.v2.proto import scan

logger = logging.getLogger("naiad")

_LEVEL: Final = verbose_level(1)
_WITH_IDS: Final = "/ModelInfer"


def with_call_log(method: Method | None, path: str) -> Method | None:
    """``method``, which lies at ``path``, with its calls logged if the log takes such lines now; else as it is."""
    if method is None or not logger.isEnabledFor(_LEVEL):
        return method
    return _logged_unary(method, path) if isinstance(method, Unary) else _logged_stream(method, path)


def _logged_unary(method: Unary, path: str) -> Unary:
    inner = method.handle
    has_id = path.endswith(_WITH_IDS)

    def handle(call: RpcCall, message: Body) -> None:
        if has_id and (request_id := _id_in(message)):
            request_log(logger, _LEVEL, request_id, "gRPC call: %s, %d bytes", path, len(message))
        else:
            verbose(logger, 1, "gRPC call: %s, %d bytes", path, len(message))
        inner(call, message)

    return replace(method, handle=handle)


def _logged_stream(method: Streaming, path: str) -> Streaming:
    def open_(call: RpcCall) -> Receiver:
        verbose(logger, 1, "gRPC call: %s", path)
        return method.open(call)

    return replace(method, open=open_)


def _id_in(message: Body) -> str:
    layout = scan(message)
    try:
        return layout.read_id(message) if layout is not None else ""
    except UnicodeDecodeError:
        return ""
