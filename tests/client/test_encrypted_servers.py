"""What clients say when a port is encrypted and they do not expect it, or do not trust it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from naiad.client import AsyncClient, Client, ConnectionFailedError
from naiad.inprocess.server import Server
from support.certificates import new_authority


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of an encrypted server, ``host:port`` by protocol."""
    own = new_authority(tmp_path_factory.mktemp("tls"), "own").issue("server")
    files = {"http_server_cert": own.cert, "http_server_key": own.key}
    files |= {"grpc_server_cert": own.cert, "grpc_server_key": own.key}
    ports = {"http_address": "127.0.0.1", "http_port": 0, "grpc_address": "127.0.0.1", "grpc_port": 0}
    with Server(**ports, **{name: str(file) for name, file in files.items()}, grpc_use_ssl=True) as server:
        yield {"https": server.http_url, "grpcs": server.grpc_url}


async def ask(url: str) -> object:
    async with AsyncClient(url) as client:
        return await client.server_metadata()


@pytest.mark.parametrize(("scheme", "plain"), [("https", "http"), ("grpcs", "grpc")])
def test_a_plain_client(servers: dict[str, str], scheme: str, plain: str) -> None:
    text = f"if the port is encrypted, write {scheme}://{servers[scheme]}"
    with Client(f"{plain}://{servers[scheme]}") as client, pytest.raises(ConnectionFailedError, match=text):
        client.server_metadata()
    with pytest.raises(ConnectionFailedError, match=text):
        asyncio.run(ask(f"{plain}://{servers[scheme]}"))


@pytest.mark.parametrize("scheme", ["https", "grpcs"])
def test_a_client_that_does_not_trust_the_certificate(servers: dict[str, str], scheme: str) -> None:
    text = "the server's certificate is not trusted: .*SSL_CERT_FILE"
    with Client(f"{scheme}://{servers[scheme]}") as client, pytest.raises(ConnectionFailedError, match=text):
        client.server_metadata()
    with pytest.raises(ConnectionFailedError, match=text):
        asyncio.run(ask(f"{scheme}://{servers[scheme]}"))
