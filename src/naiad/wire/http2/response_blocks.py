"""The blocks of headers that a server sends, as its client reads them."""

from __future__ import annotations

from typing import Final

from hpack import Decoder

from naiad.bounded_dict import BoundedDict

_CAPACITY: Final = 256


class ResponseBlocks:
    """Decodes the blocks of one connection, each block once.

    The client must have set ``HEADER_TABLE_SIZE`` to 0: without a table a block means the same whenever it comes.
    """

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._decoder.max_allowed_table_size = 0
        self._known: BoundedDict[bytes, dict[str, str]] = BoundedDict(_CAPACITY)

    def fields(self, block: bytes) -> dict[str, str]:
        """The fields of a block by name.

        Raises:
            HPACKError: it is no block.
        """
        found = self._known.get(block)
        if found is None:
            pairs = self._decoder.decode(block, raw=True)
            found = {bytes(k).decode("latin-1"): bytes(v).decode("latin-1") for k, v in pairs}
            self._known[block] = found
        return found
