"""A line in the log for every HTTP request, for ``--log-verbose`` 1 and above."""

from __future__ import annotations

import logging

from naiad.frontends.http.server.exchange import Application, Exchange, Handler
from naiad.frontends.inference.refusals import id_in_json
from naiad.telemetry.logs.server_log import request_log, verbose
from naiad.wire.http1.head import RequestHead

logger = logging.getLogger("naiad")


def with_request_log(application: Application, level: int) -> Application:
    """``application`` for this verbose level of the log: below 1 it is not wrapped and costs nothing."""
    return log_requests(application) if level > 0 else application


def log_requests(application: Application) -> Application:
    """``application``, with method and path of each request logged before it is handled."""

    def find(head: RequestHead) -> Handler:
        handler = application(head)

        def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
            text, known = "HTTP request: %s %s, %d bytes", (head.method, head.target, len(body))
            if request_id := id_in_json(body, head.first_part_bytes):
                request_log(logger, logging.DEBUG, request_id, text, *known)
            else:
                verbose(logger, 1, text, *known)
            handler(exchange, body)

        return handle

    return find
