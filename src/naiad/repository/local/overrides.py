"""The overrides of a load request: a configuration and files in place of the repository's own.

Source: the reference's model repository extension. Files take the place of the whole folder of the model. They are
written to a folder of their own, which is removed when the last version that was loaded from it is closed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from naiad.errors import InvalidArgumentError, ModelLoadError
from naiad.repository.local.layout import check_model_name
from naiad.repository.local.temporary_folder import TemporaryFolder, remove_abandoned

FILE: Final = "file:"
"""The prefix of a parameter that is a file; the path in the model's folder follows."""
MAX_FILES: Final = 10_000
"""The most files of one request."""
# Decoding holds the interpreter: after each piece other threads can run, the event loop above all.
_CHUNK_BYTES: Final = 1 << 18


Content = bytes | str | memoryview
"""The content of a file: bytes as they are; base64 as a text or as a view of its characters."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """The configuration and the files that replace the repository's own.

    Attributes:
        config: the configuration as JSON; None for the repository's.
        files: content by parameter name, such as ``file:1/model.py``.
    """

    config: str | None = None
    files: Mapping[str, Content] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.config is not None or bool(self.files)

    @property
    def size(self) -> int:
        """The bytes and characters in memory."""
        return len(self.config or "") + sum(map(len, self.files.values()))


NO_OVERRIDES: Final = Overrides()


class UnusableFilesError(InvalidArgumentError):
    """The files of a request cannot be the files of a model."""


def write_files(model: str, files: Mapping[str, Content]) -> TemporaryFolder:
    """Write ``files`` as the folder of ``model``; blocks. The caller holds the folder.

    Raises:
        UnusableFilesError: a name is no path inside the folder, a text is no base64, or there are too many.
        InvalidArgumentError: there can be no model of that name.
        ModelLoadError: the files cannot be written.
    """
    check_model_name(model)
    if len(files) > MAX_FILES:
        raise UnusableFilesError(f"the request brings {len(files)} files, at most {MAX_FILES} are allowed")
    # Every name is checked before the first file is written.
    paths = {name: _inside(model, name) for name in files}
    folder: TemporaryFolder | None = None
    try:
        remove_abandoned()
        folder = TemporaryFolder(model)
        for name, content in files.items():
            target = folder.path / paths[name]
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                file.writelines([content] if isinstance(content, bytes) else decode(name, content))
    except BaseException as error:
        if folder is not None:
            folder.release()
        if isinstance(error, OSError):
            raise ModelLoadError(f"the files of the request cannot be written: {error.strerror}") from error
        raise
    return folder


def _inside(model: str, name: str) -> PurePosixPath:
    """The path that a parameter names, which must not leave the model's folder."""
    # As in the reference, "file:/1/model.py" is the same as "file:1/model.py".
    path = PurePosixPath(name.removeprefix(FILE).lstrip("/"))
    is_wrong = not path.parts or ".." in path.parts or "\0" in name or "\\" in name
    if is_wrong or not name.startswith(FILE):
        raise UnusableFilesError(
            f"failed to load '{model}': '{name}' names no file of the model, expected 'file:' and a path inside the "
            "model's folder, such as 'file:1/model.onnx'"
        )
    return path


def decode(name: str, content: str | memoryview) -> Iterator[bytes]:
    """Decode base64, which may be broken into lines, piece by piece. ``name`` is the parameter that contains it.

    Raises:
        UnusableFilesError: it is no base64.
    """
    rest = b""
    try:
        raw = memoryview(content.encode("ascii")) if isinstance(content, str) else content
        for at in range(0, len(raw), _CHUNK_BYTES):
            chunk = rest + raw[at : at + _CHUNK_BYTES].tobytes().translate(None, b" \t\r\n")
            # Base64 is decoded in groups of four characters: an incomplete group waits for the next piece.
            end = len(chunk) if at + _CHUNK_BYTES >= len(raw) else len(chunk) // 4 * 4
            yield base64.b64decode(chunk[:end], validate=True)
            rest = chunk[end:]
    except (UnicodeEncodeError, binascii.Error) as error:
        raise UnusableFilesError(f"the content of '{name}' is not base64: {error}") from None
