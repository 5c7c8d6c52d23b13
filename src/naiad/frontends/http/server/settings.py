"""From the server's options to what serves the HTTP port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.server.cors import shared_with
from naiad.frontends.http.server.cross_site import without_cross_site
from naiad.frontends.net.tls import ssl_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ssl import SSLContext

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.http.server.exchange import Application
    from naiad.options import ServerOptions


def surrounded(
    application: Application, options: ServerOptions, gate: Gate, exposed: Sequence[str] = ()
) -> Application:
    """``application`` behind the gate, open to pages of ``--http-cors-origin``; ``exposed`` as ``shared_with``."""
    origins = options.http_cors_origin
    return shared_with(without_cross_site(guarded(application, gate), origins), origins, exposed)


def http_tls(options: ServerOptions) -> SSLContext | None:
    """The TLS settings of the HTTP port; None when it is not encrypted.

    Raises:
        OptionError: a file cannot be used.
    """
    if not options.http_uses_tls:
        return None
    protocols = ("h2", "http/1.1") if options.http_port_serves_grpc else ("http/1.1",)
    return ssl_context(
        options.http_server_cert,
        options.http_server_key,
        options.http_root_cert,
        bool(options.http_root_cert),
        port="http",
        protocols=protocols,
    )
