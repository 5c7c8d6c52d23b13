"""From the server's options to the parts that serve gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.listener import GrpcListener
from naiad.frontends.net.tls import ssl_context
from naiad.options import INT32_MAX

if TYPE_CHECKING:
    from ssl import SSLContext

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.grpcio.transport import GrpcioTransport
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.frontends.net.memory_shares import MemoryShares
    from naiad.options import ServerOptions
    from naiad.telemetry.metrics.server_statistics import CancelCounts


def grpc_listener(
    options: ServerOptions,
    shares: MemoryShares,
    methods: Methods,
    gate: Gate | None = None,
    cancelled: CancelCounts | None = None,
) -> GrpcListener:
    """The listener of our own HTTP/2, not started. It has no port where grpcio serves it, or gRPC is off.

    Raises:
        OptionError: a TLS file cannot be used.
    """
    own_port = options.allow_grpc and options.grpc_transport == "naiad"
    return GrpcListener(
        methods,
        options.grpc_address,
        options.grpc_port if own_port else None,
        limits=grpc_limits(options, shares),
        reuse_port=options.reuse_grpc_port,
        ssl=grpc_tls(options) if own_port else None,
        gate=gate,
        cancelled=cancelled,
    )


def grpcio_transport(
    options: ServerOptions,
    shares: MemoryShares,
    methods: Methods,
    gate: Gate | None = None,
    cancelled: CancelCounts | None = None,
) -> GrpcioTransport:
    """The gRPC port served by grpcio, not started.

    Raises:
        OptionError: a TLS file cannot be used.
    """
    # Imported here, since few servers use it.
    from naiad.frontends.grpc.grpcio.transport import GrpcioTransport, TlsFiles

    tls = None
    if grpc_tls(options):  # which says better than grpcio what is wrong about the files
        tls = TlsFiles(*grpc_tls_files(options))
    return GrpcioTransport(
        methods,
        options.grpc_address,
        options.grpc_port,
        limits=grpc_limits(options, shares),
        reuse_port=options.reuse_grpc_port,
        tls=tls,
        gate=gate,
        cancelled=cancelled,
    )


def grpc_tls_files(options: ServerOptions) -> tuple[str, str, str]:
    """The files of the certificate, the key and the roots of the gRPC port; "" for unused ones."""
    root = options.grpc_root_cert if options.grpc_use_ssl_mutual else ""
    return options.grpc_server_cert, options.grpc_server_key, root


def grpc_limits(options: ServerOptions, shares: MemoryShares) -> GrpcLimits:
    """The limits that the options and the memory set."""
    age_ms, grace_ms = options.grpc_max_connection_age, options.grpc_max_connection_age_grace
    return GrpcLimits(
        max_message_bytes=options.grpc_max_input_size,
        max_partial_bytes=shares.arriving,
        max_waiting_bytes=shares.waiting,
        max_connections=options.grpc_max_connections,
        keepalive_time_ms=options.grpc_keepalive_time,
        keepalive_timeout_ms=options.grpc_keepalive_timeout,
        keepalive_permit_without_calls=options.grpc_keepalive_permit_without_calls,
        max_pings_without_data=options.grpc_http2_max_pings_without_data,
        min_ping_interval_ms=options.grpc_http2_min_recv_ping_interval_without_data,
        max_ping_strikes=options.grpc_http2_max_ping_strikes,
        max_connection_age_ms=0 if age_ms == INT32_MAX else age_ms,
        # 0 means no time in the option, and any time in the limit.
        max_connection_age_grace_ms=0 if grace_ms == INT32_MAX else max(1, grace_ms),
        compression_level=options.grpc_infer_response_compression_level,
    )


def grpc_tls(options: ServerOptions) -> SSLContext | None:
    """The TLS settings of the gRPC port; None when it is not encrypted.

    Raises:
        OptionError: a file cannot be used.
    """
    if not options.grpc_use_ssl:
        return None
    return ssl_context(
        options.grpc_server_cert, options.grpc_server_key, options.grpc_root_cert, options.grpc_use_ssl_mutual
    )
