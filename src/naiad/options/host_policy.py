"""``--host-policy=<policy>,<setting>=<value>``: the cores and the memory of the instances that have a policy.

Source: the reference's ``command_line_parser.cc`` for the syntax and the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from naiad.options.kinds import Kind, integer
from naiad.processes.affinity import Affinity, numbers_text, read_numbers

CORES: Final = "cpu-cores"
NODE: Final = "numa-node"
_POLICY: Final = re.compile(r"(?P<policy>[^,]+),(?P<setting>[^=]+)=(?P<value>.+)", re.DOTALL)
_CORES: Final = re.compile(r"[0-9]{1,4}(?:-[0-9]{1,4})?(?:,[0-9]{1,4}(?:-[0-9]{1,4})?)*")
# Linux can be built for so many.
_LAST_NODE: Final = 1023


@dataclass(frozen=True, slots=True)
class HostPolicySetting:
    """One ``--host-policy`` value: the cores or the node of a policy."""

    policy: str
    affinity: Affinity

    def __str__(self) -> str:
        node = self.affinity.node
        setting = f"{CORES}={numbers_text(self.affinity.cores)}" if node is None else f"{NODE}={node}"
        return f"{self.policy},{setting}"


def affinities(settings: Iterable[HostPolicySetting]) -> dict[str, Affinity]:
    """Policies by name; of a setting that is given twice the last one counts."""
    found: dict[str, Affinity] = {}
    for each in settings:
        known, given = found.get(each.policy, Affinity()), each.affinity
        found[each.policy] = replace(known, cores=given.cores) if given.cores else replace(known, node=given.node)
    return found


def _read(text: str) -> HostPolicySetting:
    found = _POLICY.fullmatch(text)
    if found is None:
        raise ValueError(f"--host-policy option format is '<policy name>,<setting>=<value>'. Got {text}")
    setting, value = found["setting"], found["value"]
    if setting == CORES:
        return HostPolicySetting(found["policy"], Affinity(cores=_cores(value)))
    if setting == NODE:
        return HostPolicySetting(found["policy"], Affinity(node=integer(0, _LAST_NODE).read(value)))
    raise ValueError(
        f"Unsupported host policy setting '{setting}' is specified, supported settings are '{NODE}', '{CORES}'"
    )


def _cores(text: str) -> tuple[int, ...]:
    ranges = [part.split("-") for part in text.split(",")] if _CORES.fullmatch(text) else []
    if not ranges or any(int(each[0]) > int(each[-1]) for each in ranges):
        raise ValueError(f"{CORES} takes numbers and ranges, such as 0-3,8. Got {text}")
    return read_numbers(text)


HOST_POLICY: Final = Kind("<policy>,<setting>=<value>", "a setting of a policy, such as numa_0,cpu-cores=0-3", _read)
