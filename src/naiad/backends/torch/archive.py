"""The kinds of model files of this backend, told apart by their content."""

from __future__ import annotations

import zipfile
from enum import Enum
from typing import TYPE_CHECKING, Final

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from pathlib import Path

_COMPILED: Final = "data/aotinductor/"
_FORMAT: Final = "archive_format"
_PARALLEL: Final = b"#pragma omp parallel"
_INDEX_CHECK: Final = b"index out of bounds"


class FileKind(Enum):
    """What a model file holds; the values are for error texts."""

    SCRIPT = "a TorchScript file"
    EXPORTED = "an archive of torch.export"
    COMPILED = "a package of AOTInductor"
    STATE = "a file of torch.save()"
    SOURCE = "Python source"
    UNKNOWN = "a file of no known kind"


def kind_of(path: Path) -> FileKind:
    """The kind of the file in ``path``; UNKNOWN for one that is missing or damaged."""
    if path.suffix == ".py":
        return FileKind.SOURCE
    try:
        with zipfile.ZipFile(path) as archive:
            return _kind(archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return FileKind.UNKNOWN


def ends_on_bad_index(package: Path) -> bool:
    """Whether compiled code ends its process where an index is beyond a tensor, such as a token beyond a table.

    Its loops throw, and nothing catches what is thrown inside a loop that OpenMP runs on threads. The package has the
    source of its loops.
    """
    with zipfile.ZipFile(package) as archive:
        sources = (archive.read(name) for name in archive.namelist() if name.endswith(".cpp"))
        return any(_PARALLEL in source and _INDEX_CHECK in source for source in sources)


def check_file(model: str, path: Path) -> None:
    """Check that there is a file.

    Raises:
        ModelLoadError: there is none.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ModelLoadError(
            f"model '{model}': the model file {path} {what}; put the model there, or name its file with "
            f"default_model_filename in the configuration"
        )


def _kind(names: list[str]) -> FileKind:
    # Everything lies in a folder named after the file that was written.
    inner = [name.partition("/")[2] for name in names]
    if _FORMAT in inner:
        return FileKind.COMPILED if any(name.startswith(_COMPILED) for name in inner) else FileKind.EXPORTED
    if "serialized_exported_program.json" in names:
        return FileKind.EXPORTED
    if "constants.pkl" in inner:
        return FileKind.SCRIPT
    return FileKind.STATE if "data.pkl" in inner else FileKind.UNKNOWN
