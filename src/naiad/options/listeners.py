"""The ports of all listeners together: no two may be the same, and SageMaker leaves only some to the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from naiad.options.kinds import MAX_PORT, PORT, Kind

SAGEMAKER: Final = "SageMaker"
_PORTS: Final = re.compile(r"(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})")


class ListenerAddress(NamedTuple):
    """Where one listener is to listen. ``name`` is that of its requests in errors."""

    name: str
    is_allowed: bool
    address: str
    port: int


def port_problems(listeners: Sequence[ListenerAddress], safe_range: str) -> list[str]:
    """The conflicts among the ports; the texts are the reference's own.

    ``safe_range`` is "" or holds the ports of all listeners at SageMaker's address but its own, if that one is allowed.
    """
    wanted = [listener for listener in listeners if listener.is_allowed and listener.port]
    found = [_wrong_port(listener) for listener in wanted if not 0 < listener.port <= MAX_PORT]
    if found:
        return found
    taken: dict[tuple[str, int], str] = {}
    for name, _, address, port in wanted:
        other = taken.setdefault((address, port), name)
        if other is not name:
            found.append(
                f"The server cannot listen to {other} requests and {name} requests at the same address and port "
                f"{address}:{port}"
            )
    own = next((one for one in listeners if one.name == SAGEMAKER and one.is_allowed), None)
    ports = _PORTS.fullmatch(safe_range)
    if own is None or ports is None:
        return found
    first, last = int(ports["first"]), int(ports["last"])
    outside = [one for one in wanted if one.address == own.address and not first <= one.port <= last and one is not own]
    return found + [
        f"The server cannot listen to {one.name} requests at port {one.port}, allowed port range is [{first}, {last}]"
        for one in outside
    ]


def _wrong_port(listener: ListenerAddress) -> str:
    option = listener.name.lower().replace(" ", "-")
    problem = f"Provided option value is out of bound. Got {listener.port}. Expected: {PORT.expected}."
    return f'Bad option: "--{option}-port". {problem}'


def _read_ports(text: str) -> str:
    found = _PORTS.fullmatch(text)
    if found is None or not int(found["first"]) <= int(found["last"]) <= 65535:
        raise ValueError(f"Invalid option value. Got {text}")
    return text


PORT_RANGE: Final = Kind("<first>-<last>", "two ports, such as 8000-9000", _read_ports)
