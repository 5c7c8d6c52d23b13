"""Writes the repository: every model into a hidden folder first, and from there into its place as a whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from naiad.errors import NaiadError, first_line
from naiad.folder_lease import FolderLease, abandoned_folders
from naiad.quickstart import image
from naiad.quickstart.example_model import ExampleModel
from naiad.quickstart.readme import readme

README: Final = "README.md"
REQUEST: Final = "request.json"
CONFIG: Final = "config.pbtxt"
VERSION: Final = "1"

# A server takes no hidden folder for a model.
_STAGING: Final = ".quickstart-"
_ASIDE: Final = "replaced-"


class QuickstartError(NaiadError):
    """The repository cannot be written; the text says what to change."""


def write_repository(
    folder: Path, models: Sequence[ExampleModel], force: bool = False, on_model: Callable[[str], None] | None = None
) -> None:
    """Write models, a README and a sample image into ``folder``, which is made where it is missing.

    What is in its place is complete: a model is either there as a whole or not at all, whatever goes wrong.

    Args:
        folder: the model repository.
        models: the models.
        force: replace what has the same name and leave the rest, where the folder holds models or such files.
        on_model: called with the name of each model that is about to be built.

    Raises:
        QuickstartError: the folder holds something already, cannot be written, or a package fails.
    """
    names = [*(model.name for model in models), README, image.FILE]
    try:
        check_folder(folder, names, force)
        with _made(folder), _staging(folder) as staging:
            for model in models:
                if on_model is not None:
                    on_model(model.name)
                _write_model(staging / model.name, model)
            (staging / README).write_bytes(readme(folder.name, models).encode(errors="replace"))
            (staging / image.FILE).write_bytes(image.sample_image())
            for name in names:
                _put(staging / name, folder / name, staging / f"{_ASIDE}{name}")
    except OSError as error:
        raise QuickstartError(_unwritten(folder, error)) from error


def check_folder(folder: Path, names: Sequence[str], force: bool) -> None:
    """Refuse a file, and a folder with models or with one of ``names`` unless ``force`` is set.

    Raises:
        QuickstartError: it is refused.
        OSError: it cannot be read.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise QuickstartError(f"'{folder}' is no folder, expected a new or an empty one")
    if force:
        return
    visible = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    found = [path.name for path in visible if path.is_dir() or path.name in names]
    if found:
        listed = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise QuickstartError(
            f"'{folder}' holds {listed} already, expected a new or an empty folder; --force replaces what has the name "
            "of a quickstart model and leaves the rest"
        )


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make the folder and those above it, and remove what was made if it stays empty."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for path in new:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A hidden folder on the same disk, removed at the end; so are those of runs that were killed."""
    for abandoned in abandoned_folders(_STAGING, folder):
        shutil.rmtree(abandoned, ignore_errors=True)
    lease = FolderLease(_STAGING, folder)
    try:
        yield lease.path
    finally:
        shutil.rmtree(lease.path, ignore_errors=True)
        lease.release()


def _write_model(folder: Path, model: ExampleModel) -> None:
    version = folder / VERSION
    version.mkdir(parents=True)
    try:
        model.write(version)
    except OSError:
        raise
    except Exception as error:
        # A package that is there and does not work, such as one for another release of numpy.
        packages = ", ".join(package.module for package in model.packages)
        raise QuickstartError(
            f"the model '{model.name}' could not be built with {packages}: {first_line(error)}; mend the package, or "
            f"name other models with --models"
        ) from error
    (folder / CONFIG).write_text(model.config, encoding="utf-8")
    for name, text in model.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    if model.request:
        (folder / REQUEST).write_text(f"{json.dumps(model.request)}\n", encoding="utf-8")


def _put(staged: Path, place: Path, aside: Path) -> None:
    """Move a model or a file to its place; what was there is removed, or put back if the move fails."""
    if os.path.lexists(place):
        place.rename(aside)
    try:
        staged.rename(place)
    except OSError:
        if os.path.lexists(aside):
            aside.rename(place)
        raise


def _unwritten(folder: Path, error: OSError) -> str:
    where = f" ('{error.filename}')" if error.filename and Path(str(error.filename)) != folder else ""
    return f"cannot write '{folder}': {error.strerror or error}{where}; no model was left half-written"
