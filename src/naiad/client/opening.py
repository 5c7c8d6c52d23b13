"""The protocol that a client speaks, by the address of its server."""

from __future__ import annotations

from collections.abc import Mapping

from naiad.client.address import ServerAddress
from naiad.client.http_protocol import HttpProtocol
from naiad.client.protocol import ClientProtocol


def open_protocol(address: ServerAddress, headers: Mapping[str, str]) -> ClientProtocol:
    """HTTP, or gRPC for an address with ``grpc://``.

    Raises:
        InvalidArgumentError: a header has a line break, or no name.
    """
    if address.is_grpc:
        # Imported here: clients over HTTP need neither protobuf nor header compression.
        from naiad.client.grpc_protocol import GrpcProtocol

        return GrpcProtocol(address, headers)
    return HttpProtocol(address.authority, headers)
