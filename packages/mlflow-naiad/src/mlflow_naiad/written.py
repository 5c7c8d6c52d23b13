"""Deployments in a model repository: a folder with a configuration that names the models, which outlasts a restart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mlflow_naiad.options import wrong
from naiad.client.mlflow import Deployment

CONFIG: Final = "config.json"


def write(repository: Path, found: Deployment, config: Mapping[str, Any]) -> None:
    """Write the configuration of a deployment, in one step.

    Raises:
        MlflowException: another model lies there.
    """
    folder = _folder(repository, found.name)
    folder.mkdir(exist_ok=True)
    text = json.dumps(Deployment(found.name, found.models, found.flavor, config).as_config(), indent=2)
    fresh = folder / f".{CONFIG}"
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(folder / CONFIG)


def remove(repository: Path, name: str) -> None:
    """Remove what ``write`` wrote.

    Raises:
        MlflowException: another model lies there.
    """
    folder = _folder(repository, name)
    if folder.is_dir():
        shutil.rmtree(folder)


def _folder(repository: Path, name: str) -> Path:
    if not name or name.startswith(".") or any(mark in name for mark in "/\\\0"):
        raise wrong(f"'{name}' cannot be the name of a model's folder")
    folder = repository / name
    if folder.is_dir() and {path.name for path in folder.iterdir()} - {CONFIG, f".{CONFIG}"}:
        raise wrong(f"the folder '{folder}' holds another model: remove it, or choose another name")
    return folder
