"""The settings of the rate limiter, ``--rate-limit-resource <name>:<count>[:<device>]``.

Source: the reference's ``command_line_parser.cc``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from naiad.options.kinds import Kind, choice, integer

EXECUTION_COUNT: Final = "execution_count"
RATE_LIMIT: Final = choice(EXECUTION_COUNT, "off", ignore_case=True)
_SYNTAX: Final = "'<resource_name>:<count>:<device>' or '<resource_name>:<count>'"
_RESOURCE: Final = re.compile(r"(?P<name>[^:]+):(?P<count>[^:]*)(?::(?P<device>[^:]*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ResourceSetting:
    """The available amount of a resource: on one device or, without a device, on each."""

    name: str
    count: int
    device: int | None = None

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.name}:{self.count}" + ("" if self.device is None else f":{self.device}")


def _read(text: str) -> ResourceSetting:
    found = _RESOURCE.fullmatch(text)
    if found is None:
        raise ValueError(f"--rate-limit-resource option format is {_SYNTAX}. Got {text}")
    number, device = integer(0), found["device"]
    return ResourceSetting(found["name"], number.read(found["count"]), None if device is None else number.read(device))


RESOURCE_SETTING: Final = Kind("<name>:<count>[:<device>]", _SYNTAX, _read)
