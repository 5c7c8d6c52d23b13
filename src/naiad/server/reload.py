"""The files that a server reads again while it runs: the API keys, and the TLS files of both ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from naiad.frontends.access.keys import read_keys
from naiad.frontends.http.server.settings import http_tls

if TYPE_CHECKING:
    from ssl import SSLContext

    from naiad.frontends.access.keys import KeyRing
    from naiad.frontends.grpc.grpcio.transport import GrpcioTransport
    from naiad.frontends.net.file_watcher import Apply, FileReloader
    from naiad.frontends.net.listener import Listener
    from naiad.options import ServerOptions


class RemembersHeads(Protocol):
    """A listener that decides once for all requests with the same head whether they may pass."""

    def forget_heads(self) -> None:
        """Decide anew for every further request."""


def reloaded_paths(options: ServerOptions) -> tuple[str, ...]:
    """All files that are read again."""
    http = _http_files(options) if options.allow_http and options.http_uses_tls else ()
    grpc = _grpc_files(options) if options.allow_grpc and options.grpc_use_ssl else ()
    return tuple(filter(None, (options.api_key_file, *http, *grpc)))


def reload_keys(
    reloader: FileReloader, options: ServerOptions, ring: KeyRing | None, listeners: Sequence[RemembersHeads]
) -> None:
    """Replace the keys of ``ring`` whenever their file changes."""
    if ring is None or not options.api_key_file:
        return

    # Here and below ``read`` runs in the file thread, and what it returns on the loop.
    def read() -> Apply:
        keys = read_keys(options.api_key, options.api_key_file)

        def apply() -> None:
            ring.replace(keys)
            # A cached head has the decision that the old keys led to.
            for listener in listeners:
                listener.forget_heads()

        return apply

    reloader.add("the API keys", (options.api_key_file,), read)


def reload_http_tls(reloader: FileReloader, options: ServerOptions, listener: Listener) -> None:
    """Use changed TLS files for new connections to the HTTP port."""
    if options.http_uses_tls:
        reloader.add("the TLS files of the HTTP port", _http_files(options), _reading(http_tls, options, listener))


def reload_grpc_tls(reloader: FileReloader, options: ServerOptions, listener: Listener | GrpcioTransport) -> None:
    """Use changed TLS files for new connections to the gRPC port."""
    # Imported here: a server without gRPC does not pay for it.
    from naiad.frontends.grpc.grpcio.transport import GrpcioTransport
    from naiad.frontends.grpc.settings import grpc_tls

    if not options.grpc_use_ssl:
        return

    def read_for_grpcio(transport: GrpcioTransport) -> Apply:
        grpc_tls(options)  # which finds what grpcio would find too late
        return transport.read_tls()

    read: Callable[[], Apply]
    if isinstance(listener, GrpcioTransport):
        read = partial(read_for_grpcio, listener)
    else:
        read = _reading(grpc_tls, options, listener)
    reloader.add("the TLS files of the gRPC port", _grpc_files(options), read)


def _reading(
    context: Callable[[ServerOptions], SSLContext | None], options: ServerOptions, listener: Listener
) -> Callable[[], Apply]:
    def read() -> Apply:
        found = context(options)
        return (lambda: None) if found is None else partial(listener.use_tls, found)

    return read


def _http_files(options: ServerOptions) -> tuple[str, ...]:
    return options.http_server_cert, options.http_server_key, options.http_root_cert


def _grpc_files(options: ServerOptions) -> tuple[str, ...]:
    root = options.grpc_root_cert if options.grpc_use_ssl_mutual else ""
    return options.grpc_server_cert, options.grpc_server_key, root
