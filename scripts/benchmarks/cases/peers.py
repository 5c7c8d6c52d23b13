"""Naiad beside other inference servers: a case for each network and form of requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from ..figures import Figure
from ..peers.compare import compare
from ..peers.subjects import SUBJECTS
from ..peers.wires import WIRES
from ..settings import Settings

PEER_CASES: Mapping[str, Callable[[Settings], Iterator[Figure]]] = {
    f"peers_{subject}_{wire}": partial(compare, subject=subject, wire=wire) for subject in SUBJECTS for wire in WIRES
}
