"""The kinds of the reference's options that are accepted for compatibility and have no effect here.

Their values are checked nevertheless, so that a command line that works here works there. Source of the syntax: the
reference's ``command_line_parser.cc``.
"""

from __future__ import annotations

import re
from typing import Final

from naiad.options.kinds import INT64_MAX, Kind, integer

_POLICY: Final = re.compile(r"[^,=]+,(?P<setting>[^,=]+)=(?P<value>.+)", re.DOTALL)
_CORES: Final = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_PORTS: Final = re.compile(r"(?P<first>[0-9]{1,9})-(?P<last>[0-9]{1,9})")
_FRACTION: Final = re.compile(r"0*1(?:\.0*)?|0*(?:\.[0-9]+)?|0+\.")
_CAPABILITY: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?")
_POLICY_SETTINGS: Final = ("numa-node", "cpu-cores")


def _read_policy(text: str) -> str:
    found = _POLICY.fullmatch(text)
    if found is None:
        raise ValueError(f"--host-policy option format is '<policy>,<setting>=<value>'. Got {text}")
    if found["setting"] not in _POLICY_SETTINGS:
        known = " and ".join(_POLICY_SETTINGS)
        raise ValueError(f"unknown setting {found['setting']!r} of a host policy, known ones are {known}")
    if found["setting"] == "numa-node":
        integer(0).read(found["value"])
    elif _CORES.fullmatch(found["value"]) is None:
        raise ValueError(f"cpu-cores takes numbers and ranges, such as 0-3,8. Got {found['value']}")
    return text


def _read_ports(text: str) -> str:
    found = _PORTS.fullmatch(text)
    if found is None or not int(found["first"]) <= int(found["last"]) <= 65535:
        raise ValueError(f"Invalid option value. Got {text}")
    return text


def _read_capability(text: str) -> str:
    if _CAPABILITY.fullmatch(text) is None:
        raise ValueError(f"Invalid option value. Got {text}")
    return text


def _read_bytes_of_gpu(text: str) -> str:
    gpu, _, size = text.partition(":")
    integer(0).read(gpu)
    integer(0, INT64_MAX).read(size)
    return text


def _read_share_of_gpu(text: str) -> str:
    gpu, _, share = text.partition(":")
    integer(0).read(gpu)
    if not share or _FRACTION.fullmatch(share) is None:
        raise ValueError(f"expected a fraction from 0 to 1 of the GPU's memory. Got {share}")
    return text


BYTES_OF_GPU: Final = Kind("<gpu>:<bytes>", "the number of a GPU and bytes, such as 0:1073741824", _read_bytes_of_gpu)
SHARE_OF_GPU: Final = Kind("<gpu>:<fraction>", "the number of a GPU and a fraction, such as 0:0.8", _read_share_of_gpu)
HOST_POLICY: Final = Kind(
    "<policy>,<setting>=<value>", "a setting of a policy, such as numa_0,cpu-cores=0-3", _read_policy
)
COMPUTE_CAPABILITY: Final = Kind("<number>", "a compute capability, such as 7.5", _read_capability)
PORT_RANGE: Final = Kind("<first>-<last>", "two ports, such as 8000-9000", _read_ports)
