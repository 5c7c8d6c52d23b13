"""A conversion in one file: the formats, the samples and what was found, as a zip file."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path, PurePosixPath
from typing import Final

from naiad.convert.errors import ConvertError, FileMissingError, FileThereError
from naiad.convert.report_text import report_text
from naiad.convert.results import Conversion
from naiad.convert.run import REPORT

_VERSION: Final = 1
_HEAD: Final = "package.json"
_ROOT: Final = "{package}"
"""Stands for the folder with the package's content in the paths of the report."""


def save(conversion: Conversion, file: Path, *, overwrite: bool = False, with_samples: bool = True) -> None:
    """Write the package.

    Raises:
        FileThereError: there is such a file already.
        FileMissingError: the folder of the conversion is gone.
        ConvertError: the file cannot be written.
    """
    if file.exists() and not overwrite:
        raise FileThereError(f"there is a file {file} already; remove it, or give another name")
    work = Path(conversion.work).resolve()
    if not work.is_dir():
        raise FileMissingError(f"{work} with the formats is gone, so nothing is left to save; convert again")
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as made:
            made.writestr(_HEAD, json.dumps({"version": _VERSION, "name": conversion.name}))
            made.writestr(REPORT, json.dumps(conversion.as_json(), indent=1).replace(str(work), _ROOT))
            for path in _files(conversion, work, with_samples=with_samples):
                made.write(path, str(path.relative_to(work)))
    except OSError as error:
        file.unlink(missing_ok=True)
        raise ConvertError(f"{file} cannot be written: {error}") from None


def load(file: Path, work: Path) -> Conversion:
    """Unpack a package into ``work``: a new or an empty folder, or that of an earlier package, which goes.

    Raises:
        FileMissingError: there is no such file.
        ConvertError: the file is no package, or the folder has something else in it.
    """
    if not file.exists():
        raise FileMissingError(f"there is no file {file}")
    if work.exists() and any(work.iterdir()) and not _is_unpacked(work, file):
        raise ConvertError(f"{work} is not empty; give a new folder")
    try:
        with zipfile.ZipFile(file) as packed:
            conversion = _read(packed, file, str(work.resolve()))
            for name in packed.namelist():
                if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                    raise ConvertError(f"{file} has a file '{name}', which leads out of the package")
            work.mkdir(parents=True, exist_ok=True)
            _empty(work)
            packed.extractall(work)
    except OSError as error:
        raise ConvertError(f"{file} cannot be unpacked into {work}: {error}") from None
    except zipfile.BadZipFile as error:
        raise ConvertError(f"{file} is no package of naiad convert: {error}") from None
    conversion.work = str(work.resolve())
    return conversion


def _is_unpacked(work: Path, file: Path) -> bool:
    """Whether a folder holds what ``load`` has unpacked, and not the file itself."""
    is_package = (work / _HEAD).is_file() and (work / REPORT).is_file()
    return is_package and not file.resolve().is_relative_to(work.resolve())


def _empty(folder: Path) -> None:
    """Remove what a folder holds; the folder itself stays, as it may be a mount."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def copied(conversion: Conversion, work: Path) -> Conversion:
    """The same conversion with its files in ``work``, another folder.

    Raises:
        ConvertError: a file cannot be copied.
    """
    before = Path(conversion.work).resolve()
    try:
        for path in _files(conversion, before, with_samples=True):
            place = work / path.relative_to(before)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
    except OSError as error:
        raise ConvertError(f"{work} cannot be written: {error}") from None
    text = json.dumps(conversion.as_json())
    return Conversion.from_json(json.loads(text.replace(str(before), str(work.resolve()))))


def inspect(file: Path) -> str:
    """What a package has, as text.

    Raises:
        ConvertError: the file is no package.
    """
    try:
        with zipfile.ZipFile(file) as packed:
            conversion = _read(packed, file, str(file))
            sizes = "".join(f"  {info.file_size:>12}  {info.filename}\n" for info in packed.infolist())
    except (OSError, zipfile.BadZipFile) as error:
        raise ConvertError(f"{file} is no package of naiad convert: {error}") from None
    return f"{report_text(conversion)}\nfiles:\n{sizes}"


def _files(conversion: Conversion, work: Path, *, with_samples: bool) -> list[Path]:
    folders = [work / result.target / "model" for result in conversion.formats if result.is_made]
    folders += [work / "samples", work / "reference"] if with_samples else []
    return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def _read(packed: zipfile.ZipFile, file: Path, root: str) -> Conversion:
    try:
        head = json.loads(packed.read(_HEAD))
        if head["version"] != _VERSION:
            raise ConvertError(f"{file} has version {head['version']} of the format, and this Naiad reads {_VERSION}")
        return Conversion.from_json(json.loads(packed.read(REPORT).decode().replace(_ROOT, root)))
    except (KeyError, ValueError, TypeError) as error:
        raise ConvertError(f"{file} is no package of naiad convert: {error}") from None
