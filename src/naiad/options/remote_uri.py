"""The address of a model repository that is not a local folder, from the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

CLOUD: Final = ("s3", "gs", "as")
WEB: Final = ("http", "https")
MLFLOW: Final = ("models", "runs", "mlflow-artifacts")
SCHEMES: Final = (*CLOUD, *WEB, *MLFLOW)
_REMOTE: Final = re.compile(rf"(?:{'|'.join((*CLOUD, *WEB))})://|(?:{'|'.join(MLFLOW)}):/")
_USER: Final = re.compile(r"://[^/@\s]*@")
_QUERY: Final = re.compile(r"(://[^\s?\"']*)\?[^\s\"']*")


@dataclass(frozen=True, slots=True)
class RemoteUri:
    """An address such as ``s3://bucket/models``. ``str`` of it has no password and no signature.

    Attributes:
        text: the address, unchanged.
    """

    text: str

    @property
    def scheme(self) -> str:
        """The part before the colon."""
        return self.text.partition(":")[0]

    def __str__(self) -> str:
        return redacted(self.text)

    def __repr__(self) -> str:
        return f"RemoteUri({str(self)!r})"


def is_remote(text: str) -> bool:
    """Whether ``text`` begins like the address of a remote repository."""
    return _REMOTE.match(text) is not None


def redacted(text: str) -> str:
    """An address or a text with addresses, without user names, passwords and queries, which may be signatures."""
    return _QUERY.sub(r"\1?...", _USER.sub("://...@", text))
