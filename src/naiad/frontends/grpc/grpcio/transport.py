"""gRPC over the grpcio library (``--grpc-transport=grpcio``): slower than our own stack, and independent of it.

grpcio is imported when the transport starts, so that a server without it needs no such package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import OptionError
from naiad.extras import how_to_install
from naiad.frontends.grpc.grpcio.call import CallsInFlight
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.net.listener import shown_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from naiad.frontends.access.gate import Gate
    from naiad.frontends.grpc.rpc.call import Methods
    from naiad.telemetry.metrics.server_statistics import CancelCounts

log = logging.getLogger(__name__)

MAX_CALLS: Final = 65_536
"""Open calls of all connections together; grpcio does not limit the connections themselves."""
CLOSING_S: Final = 2.0
"""The time that the last statuses may take to leave once no call is in flight."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the server: its certificate chain and key, and with ``root`` the authorities that every client's
    certificate is verified against, which makes one mandatory."""

    cert: str
    key: str
    root: str = ""


class GrpcioTransport:
    """Serves a table of methods on one address and port, with the same surface as a listener of our own.

    ``option`` is the command-line option that set the port; error texts name it. Of ``limits``, grpcio has no setting
    for ``max_connections`` and for the times that our own stack watches by itself. All methods belong to the event
    loop's thread. Whoever starts a transport calls ``drain`` or ``abort`` in the end.
    """

    def __init__(
        self,
        methods: Methods,
        host: str,
        port: int,
        *,
        limits: GrpcLimits | None = None,
        reuse_port: bool = False,
        tls: TlsFiles | None = None,
        option: str = "--grpc-port",
        gate: Gate | None = None,
        cancelled: CancelCounts | None = None,
    ) -> None:
        self._methods = methods
        self._cancelled = cancelled
        self._host = host
        self._port = port
        self._limits = limits or GrpcLimits()
        self._reuse_port = reuse_port
        self._tls = tls
        self._option = option
        self._gate = gate
        self._server: Any = None
        self._calls: CallsInFlight | None = None
        self._aborting: asyncio.Task[None] | None = None
        self._identity: Any = None

    @property
    def port(self) -> int:
        """The port that is listened on, also when 0 was asked for."""
        return self._port

    @property
    def address(self) -> str:
        """``host:port`` as it is shown to people; IPv6 hosts in brackets."""
        return shown_address(self._host, self._port)

    async def start(self) -> None:
        """Open the port and serve.

        Raises:
            OptionError: grpcio is not installed, a TLS file cannot be used, or the port cannot; nothing stays open.
        """
        try:
            from grpc import aio
        except ModuleNotFoundError as error:
            raise OptionError(
                f"--grpc-transport=grpcio needs a package that is not installed ({error.name}): "
                f"leave the option out, or run: {how_to_install('grpcio')}"
            ) from error
        calls = CallsInFlight(self._methods, self._gate, self._cancelled)
        server = aio.server(
            handlers=(calls,),
            options=channel_options(self._limits, self._reuse_port),
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        self._port = self._bind(server)
        await server.start()
        self._server, self._calls = server, calls

    def _bind(self, server: Any) -> int:
        try:
            if self._tls is None:
                return int(server.add_insecure_port(self.address))
            self._identity = _identity(self._tls)
            return int(server.add_secure_port(self.address, self._credentials(self._tls)))
        except RuntimeError as error:
            raise OptionError(
                f"cannot listen on {self.address}: grpcio could not use the address and port ({error}); if the port is "
                f"in use, stop the program that uses it or choose another port with {self._option}"
            ) from error

    def _credentials(self, tls: TlsFiles) -> Any:
        import grpc

        # grpcio calls this in a thread of its own before each handshake. One attribute is read, so there is no lock.
        return grpc.dynamic_ssl_server_credentials(self._identity, lambda: self._identity, bool(tls.root))

    def read_tls(self) -> Callable[[], None]:
        """Read the TLS files anew, in any thread; the returned function lets new connections begin with them.

        Raises:
            OptionError: a file cannot be read.
        """
        identity = None if self._tls is None else _identity(self._tls)

        def apply() -> None:
            self._identity = identity

        return apply

    def forget_heads(self) -> None:
        """Do nothing: the gate decides on each call anew."""

    def stop_accepting(self) -> None:
        """Turn new calls away; grpcio keeps its port open until ``drain`` or ``abort``."""
        if self._calls is not None:
            self._calls.stop()

    async def drain(self, timeout_s: float) -> bool:
        """Answer the calls in flight, then close everything.

        Returns False when some were still in flight after ``timeout_s`` seconds; these are dropped.
        """
        if self._calls is None:
            return True
        self.stop_accepting()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._calls.idle.wait(), timeout_s)
        in_time = self._calls.idle.is_set()
        # Taken out first: ``abort`` may be called during the wait below.
        server, self._server = self._server, None
        if server is not None:
            await server.stop(CLOSING_S if in_time else None)
        return in_time

    def abort(self) -> None:
        """Drop all open calls, with the responses that were not sent."""
        self.stop_accepting()
        server, self._server = self._server, None
        if server is not None:
            # The loop refers to tasks weakly: without this one it might be collected before its end.
            self._aborting = asyncio.get_running_loop().create_task(server.stop(None))


def channel_options(limits: GrpcLimits, reuse_port: bool) -> tuple[tuple[str, int], ...]:
    """The limits as grpcio's channel arguments."""
    options = {
        "grpc.so_reuseport": int(reuse_port),
        "grpc.max_receive_message_length": limits.max_message_bytes,
        "grpc.max_send_message_length": -1,
        "grpc.max_concurrent_streams": limits.max_streams,
        "grpc.keepalive_time_ms": limits.keepalive_time_ms,
        "grpc.keepalive_timeout_ms": limits.keepalive_timeout_ms,
        "grpc.keepalive_permit_without_calls": int(limits.keepalive_permit_without_calls),
        "grpc.http2.max_pings_without_data": limits.max_pings_without_data,
        "grpc.http2.min_ping_interval_without_data_ms": limits.min_ping_interval_ms,
        "grpc.http2.max_ping_strikes": limits.max_ping_strikes,
    }
    if limits.max_connection_age_ms:
        options["grpc.max_connection_age_ms"] = limits.max_connection_age_ms
    if limits.max_connection_age_grace_ms:
        options["grpc.max_connection_age_grace_ms"] = limits.max_connection_age_grace_ms
    if limits.compression_level != "none":
        options["grpc.default_compression_level"] = _COMPRESSION_LEVELS[limits.compression_level]
    return tuple(options.items())


_COMPRESSION_LEVELS: Final = {"none": 0, "low": 1, "medium": 2, "high": 3}


def _identity(tls: TlsFiles) -> Any:
    import grpc

    try:
        identity = (Path(tls.key).read_bytes(), Path(tls.cert).read_bytes())
        roots = Path(tls.root).read_bytes() if tls.root else None
    except OSError as error:
        raise OptionError(
            f"cannot read {error.filename}: {error.strerror}; correct the --grpc-server-* options"
        ) from error
    return grpc.ssl_server_certificate_configuration((identity,), roots)
