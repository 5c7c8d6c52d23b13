"""The request log of a listener, which stands around its application only while it is on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.frontends.http.server.access_log import with_request_log

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application
    from naiad.frontends.http.server.listener import HttpListener
    from naiad.telemetry.logs.server_log import LogSettings, ServerLog


def follow_log(log: ServerLog, listener: HttpListener, application: Application) -> None:
    """Log the requests of ``application``, or no more, as the settings of the log change: the API can do that."""

    def follow(settings: LogSettings) -> None:
        listener.serve(with_request_log(application, settings.log_verbose_level))

    log.when_changed.append(follow)
