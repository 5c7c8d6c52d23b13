"""Hints about a folder that is not laid out as ``<repository>/<model>/<version>/<model file>``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from naiad.config.complete import FORMATS, format_by_suffix, is_ensemble
from naiad.config.read import config_files
from naiad.config.source import ModelSource

_MODEL_NAMES: Final = frozenset(form.filename for form in FORMATS)
_NEARLY_VERSION: Final = re.compile(r"(?:v|ver|version)[-_.]?0*([1-9]\d*)", re.IGNORECASE)

_WEIGHT_FILES: Final = frozenset({"pytorch_model.bin", "tf_model.h5", "flax_model.msgpack"})
"""Files that transformers writes, beside those in safetensors."""


def version_number(name: str) -> int | None:
    """The version of a folder called ``name``: digits that do not begin with 0; None for any other name."""
    is_number = name.isascii() and name.isdigit() and not name.startswith("0")
    # Python refuses to read numbers of more than 4300 digits; file names end well before.
    return int(name) if is_number else None


def hint_for_repository(repository: Path, children: Sequence[Path]) -> str:
    """A hint about a folder that is no repository, "" when it looks like one.

    Args:
        children: its entries without hidden files.
    """
    shown = repository.absolute()
    folders = [child for child in children if os.path.isdir(child)]
    file = _model_file(children)
    if file is not None and version_number(shown.name) is not None:
        return (
            f"found {file.name} in the repository itself, which looks like version {shown.name} of model "
            f"'{shown.parent.name}': give the folder that holds the model's folder ('{shown.parent.parent}')"
        )
    if file is not None and not folders:
        return (
            f"found {file.name} in the repository itself, expected it in a version folder of a model: move it to "
            f"'{shown / file.stem / '1' / file.name}', or serve the file alone: naiad serve {shown / file.name}"
        )
    if folders and all(version_number(child.name) is not None and not _is_model(child) for child in folders):
        return (
            f"found no folders but {_quoted(folders)}, which look like the versions of one model: give the folder "
            f"above it ('{shown.parent}')"
        )
    return ""


def hint_for_model(directory: Path) -> str:
    """A hint about a model's folder without a version, as the end of a sentence; "" when there is none."""
    try:
        children = sorted(child for child in directory.iterdir() if not child.name.startswith("."))
    except OSError:
        return ""
    folders = [child for child in children if os.path.isdir(child)]
    for folder in folders:
        if found := _NEARLY_VERSION.fullmatch(folder.name):
            return f"; the name of '{folder}' is no version, rename it to '{found[1]}'"
    if (file := _model_file(children)) is not None:
        return f"; '{file}' lies beside no version folder, move it to '{directory / '1' / file.name}'"
    if weights := next(
        (child for child in children if child.name in _WEIGHT_FILES or child.suffix == ".safetensors"), None
    ):
        return (
            f"; '{weights.name}' is weights without a program: export the model to ONNX, or write a Python model whose "
            "initialize() loads this folder"
        )
    if models := [folder for folder in folders if _is_model(folder)]:
        looks = f"'{directory}' holds {_quoted(models)} and looks like a repository itself"
        return f"; {looks}, give it in place of the folder above it"
    return ""


def with_version_of_ensemble(source: ModelSource, config: Any) -> ModelSource:
    """``source`` with a version 1 when it is an ensemble without a version folder.

    Nothing lies in such a folder, and git keeps no empty ones.
    """
    if source.versions or source.directory is None or not is_ensemble(config):
        return source
    return replace(source, versions={1: source.directory / "1"})


def _model_file(children: Sequence[Path]) -> Path | None:
    named = [child for child in children if child.name in _MODEL_NAMES]
    # Files in Python and XML are also found where no models are.
    others = [child for child in children if _has_suffix_of_model(child) and os.path.isfile(child)]
    return next(iter([*named, *others]), None)


def _has_suffix_of_model(path: Path) -> bool:
    return path.suffix not in (".py", ".xml") and format_by_suffix(path.name) is not None


def _is_model(folder: Path) -> bool:
    try:
        return bool(config_files(folder)) or any(
            version_number(child.name) is not None and os.path.isdir(child) for child in folder.iterdir()
        )
    except OSError:
        return False


def _quoted(paths: Sequence[Path]) -> str:
    shown = ", ".join(f"'{path.name}'" for path in paths[:3])
    return f"{shown} and {len(paths) - 3} more" if len(paths) > 3 else shown
