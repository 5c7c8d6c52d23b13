"""The headers that commands send with their requests, as ``--header`` gives them."""

from __future__ import annotations

from collections.abc import Sequence

from naiad.errors import InvalidArgumentError


def read_headers(given: Sequence[str]) -> dict[str, str]:
    """The headers in lines such as ``Authorization: Bearer KEY``, by their names.

    Raises:
        InvalidArgumentError: a line has no colon.
    """
    headers: dict[str, str] = {}
    for line in given:
        name, colon, value = line.partition(":")
        if not colon:
            raise InvalidArgumentError(f"--header {line!r}: expected 'name: value'")
        headers[name.strip()] = value.strip()
    return headers
