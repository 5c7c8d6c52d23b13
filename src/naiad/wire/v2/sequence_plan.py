"""Plans of requests that differ only in the number of their sequence.

Each sequence has another number, so the descriptions of its requests are new with every sequence. Here the number is
cut out of a description, and the rest is the key of a cached plan. A sequence whose id is a string, or a number written
in an unusual way, is left to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from naiad.wire.proto_fields import read_varint
from naiad.wire.v2.plan import PlanMemo

_KEY: Final = b"sequence_id"
_JSON_KEY: Final = b'"sequence_id":'
_JSON_NUMBER: Final = re.compile(rb" ?([1-9][0-9]{0,18})[,}]")
_PROTO_KEY: Final = b"\n\x0bsequence_id\x12"
# Bytes of an entry of the parameters beside the value, and of the value beside its number.
_ENTRY_BYTES: Final = 15
_TAG_BYTES: Final = 1
_INT64_TAG: Final = 0x10
_Cached = TypeVar("_Cached")

Cut = tuple[int, bytes]
"""The number of a sequence, and the description without its digits."""


def cut_json(description: bytes) -> Cut | None:
    """Cut the number out of the JSON part of a request; None when its first key has no plain number."""
    at = description.find(_JSON_KEY)
    found = _JSON_NUMBER.match(description, at + len(_JSON_KEY)) if at >= 0 else None
    if found is None:
        return None
    begin, end = found.span(1)
    return int(found[1]), description[:begin] + description[end:]


def cut_proto(description: bytes) -> Cut | None:
    """Cut the number out of the fields of a ``ModelInferRequest``; None as in ``cut_json``.

    The lengths around it stay: numbers of as many bytes have the same rest.
    """
    at = description.find(_PROTO_KEY)
    begin = at + len(_PROTO_KEY) + 1 + _TAG_BYTES
    if at < 2 or begin >= len(description) or description[begin - 1] != _INT64_TAG:
        return None
    size = description[begin - 2]
    end = begin + size - _TAG_BYTES
    # The entry has nothing else in it.
    if description[at - 1] != _ENTRY_BYTES + size or not begin < end <= len(description):
        return None
    try:
        number, after = read_varint(description, begin)
    except (IndexError, ValueError):
        return None
    # A last byte of 0 means that the number has more bytes than it needs.
    if after != end or not 0 < number < 1 << 63 or not description[end - 1]:
        return None
    return number, description[:begin] + description[end:]


class SequencePlans(Generic[_Cached]):
    """A cache of plans by their descriptions without the number of the sequence, which ``cut`` finds; bounded as
    ``PlanMemo``.
    """

    __slots__ = ("_cut", "_memo", "forget")

    def __init__(self, cut: Callable[[bytes], Cut | None]) -> None:
        self._cut = cut
        self._memo = PlanMemo[_Cached]()
        self.forget = self._memo.forget

    def find(self, description: bytes) -> tuple[_Cached, int] | None:
        """The cached plan of a request that differs only in the number of its sequence, and that number."""
        cut = self._cut(description)
        if cut is None:
            return None
        # ``keep`` has made sure that the number cut out is that of the sequence.
        cached = self._memo.get(cut[1])
        return None if cached is None else (cached, cut[0])

    def keep(self, description: bytes, cached: _Cached, correlation_id: int | str) -> bool:
        """Cache the plan of a request of the sequence ``correlation_id``; False when it is not cached.

        The part cut out must be that number: the parameter's name occurs once, and the numbers are equal.
        """
        cut = self._cut(description) if correlation_id and description.count(_KEY) == 1 else None
        if cut is None or cut[0] != correlation_id:
            return False
        self._memo.keep(cut[1], cached)
        return True
