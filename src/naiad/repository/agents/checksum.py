"""The repository agent ``checksum``: a model is loaded only if its files have the hashes that its configuration names.

Source: the reference's checksum repository agent, which knows MD5. Its parameters are ``<algorithm>:<path>`` with the
hash in hexadecimal digits; the path is that of a file in the model's folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from naiad.errors import InvalidArgumentError, ModelLoadError

if TYPE_CHECKING:
    from naiad.repository.agents.call import AgentCall

# The reference has MD5 alone, which can be forged.
_ALGORITHMS: Final = {"MD5": "md5", "SHA256": "sha256"}


class ChecksumAgent:
    """Checks files at LOAD, and ignores other actions."""

    def act(self, call: AgentCall) -> None:
        """Check every file that the parameters name.

        Raises:
            InvalidArgumentError: a parameter names no algorithm, or no file in the model's folder.
            ModelLoadError: a file has another hash, or cannot be read.
        """
        if call.action != "LOAD":
            return
        for key, expected in call.parameters.items():
            algorithm, _, name = key.partition(":")
            if algorithm not in _ALGORITHMS:
                raise InvalidArgumentError(f"Unsupported checksum algorithm: {algorithm}")
            found = _hash(_ALGORITHMS[algorithm], _inside(call.location, key, name), name)
            if found != expected.strip().lower():
                raise ModelLoadError(f"Mismatched {algorithm} hash for file {name}, expect: {expected}, got: {found}")


def _inside(folder: Path, key: str, name: str) -> Path:
    """The file that a parameter names, which must not leave the model's folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise InvalidArgumentError(
            f"the checksum parameter '{key}' names no file of the model, expected '<algorithm>:<path>' with a path "
            "inside the model's folder, such as 'MD5:1/model.onnx'"
        )
    return folder / path


def _hash(algorithm: str, file: Path, name: str) -> str:
    try:
        # Without O_NONBLOCK the opening of a pipe would wait for a writer.
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ModelLoadError(f"cannot compute the checksum of '{name}': it is no plain file")
            # A Python in FIPS mode refuses MD5 otherwise, and configurations of the reference use it.
            return hashlib.file_digest(opened, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise ModelLoadError(f"cannot compute the checksum of '{name}': {error.strerror}") from None
