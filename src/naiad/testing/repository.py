"""Model repositories on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path


def write_model(
    repository: str | Path,
    name: str,
    config: str = "",
    versions: Iterable[int] = (1,),
    files: Mapping[str, str | bytes | Path] | None = None,
) -> Path:
    """Write a model's folder into a repository.

    Args:
        repository: the repository's folder; made where it is missing.
        name: the model's name.
        config: the text of ``config.pbtxt``; none is written for "".
        versions: the versions, each of which gets a folder.
        files: the content of each version by file name: a text, bytes, or the path of a file to copy.

    Returns:
        The model's folder.

    Raises:
        FileExistsError: a version exists already.
    """
    folder = Path(repository) / name
    for version in versions:
        place = folder / str(version)
        place.mkdir(parents=True)
        for file, content in (files or {}).items():
            _write(place / file, content)
    if config:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.pbtxt").write_text(config, encoding="utf-8")
    return folder


def _write(path: Path, content: str | bytes | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
