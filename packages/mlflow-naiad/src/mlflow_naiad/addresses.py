"""Addresses of models, with a version in the place of an alias or a stage."""

from __future__ import annotations

import re
import urllib.parse
from typing import Final

from mlflow.tracking import MlflowClient

_ALIAS: Final = re.compile(r"models:/(?P<name>[^/@]+)@(?P<alias>[^/@]+)")
_STAGE: Final = re.compile(r"models:/(?P<name>[^/@]+)/(?P<stage>[^/@]*[^/@0-9][^/@]*)")


def pinned(registry: MlflowClient, uri: str) -> str:
    """``models:/<name>/<version>`` for an alias, a stage or ``latest``; other addresses as they are.

    Raises:
        MlflowException: there is no such model, or no such alias.
    """
    if found := _ALIAS.fullmatch(uri):
        name = urllib.parse.unquote(found["name"])
        return f"models:/{found['name']}/{registry.get_model_version_by_alias(name, found['alias']).version}"
    if found := _STAGE.fullmatch(uri):
        name, stage = urllib.parse.unquote(found["name"]), found["stage"]
        versions = registry.search_model_versions(f"name='{name}'")
        wanted = [v for v in versions if stage.lower() in ("latest", str(v.current_stage).lower())]
        if wanted:
            return f"models:/{found['name']}/{max(int(v.version) for v in wanted)}"
    return uri
