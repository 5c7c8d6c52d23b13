"""When a client uses regions, and how it takes them back from a server once nobody closes the client."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from naiad.client import questions
from naiad.client.address import ServerAddress
from naiad.client.connection import BlockingConnection
from naiad.client.deadline import deadline_in
from naiad.client.protocol import ClientProtocol
from naiad.client.region_pool import RegionPool
from naiad.errors import NaiadError

_LAST_WORDS_S: Final = 1.0


def open_pool(address: ServerAddress, shared_memory: bool | None) -> RegionPool | None:
    """The regions of a client; None for a client that has none.

    Args:
        shared_memory: False for none; None for some where the server is local, if it takes them.
    """
    if shared_memory is None and not _is_local(address.host):
        return None
    return None if shared_memory is False else RegionPool(is_required=bool(shared_memory))


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unregister_left(address: ServerAddress, protocol: ClientProtocol, names: Iterable[str]) -> None:
    """Unregister what a client that nobody closed has left, within a second, or not at all."""
    left = list(names)
    if not left:
        return
    deadline = deadline_in(_LAST_WORDS_S)
    with suppress(NaiadError, OSError):
        connection = BlockingConnection(address, protocol.exchange(), deadline)
        try:
            for name in left:
                connection.exchange(protocol.plain(questions.unregister_region(name)), deadline)
        finally:
            connection.close()
