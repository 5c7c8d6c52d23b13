"""The content type of a body with tensors behind its JSON part: the platforms pass no headers of their own on.

Source: the reference, whose texts these are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from naiad.errors import InvalidArgumentError

_NUMBER: Final = re.compile(r"[ \t]*(?P<number>[+-]?[0-9]{1,32})")
_INT32_MAX: Final = 2**31 - 1


class BinaryType(NamedTuple):
    """A content type that ends with the length of the JSON part in bytes; ``prefix`` is all before that number."""

    prefix: str

    def json_bytes(self, headers: Mapping[str, str]) -> str | None:
        """The length in the content type of a request; None for one of another type. It may be beyond the body.

        Raises:
            InvalidArgumentError: the type is not at the beginning, or no number follows.
        """
        given = headers.get("content-type", "")
        if self.prefix not in given:
            return None
        if not given.startswith(self.prefix):
            raise InvalidArgumentError(f"expect MIME type for binary data starts with '{self.prefix}', got: {given}")
        text = given.removeprefix(self.prefix)
        found = _NUMBER.match(text)
        if found is None:
            raise InvalidArgumentError(f"Unable to parse inference header size, got: {text}")
        number = int(found["number"])
        if not -_INT32_MAX <= number <= _INT32_MAX:
            raise InvalidArgumentError(f"Unable to parse inference header size, value is out of range, got: {text}")
        return str(number)


SAGEMAKER: Final = BinaryType("application/vnd.sagemaker-triton.binary+json;json-header-size=")
VERTEX_AI: Final = BinaryType("application/vnd.vertex-ai-triton.binary+json;json-header-size=")
