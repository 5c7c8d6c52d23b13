"""The body of SageMaker's request to load a model: ``{"model_name": ..., "url": ...}``, checked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from naiad.errors import InvalidArgumentError, MalformedRequestError
from naiad.frontends.http.server.exchange import Body
from naiad.frontends.http.v2.small_body import read_settings

TARGET_HEADER: Final = "x-amzn-sagemaker-target-model"
"""The archive that a model came from, as the caller of the endpoint names it."""
_PART: Final = "[0-9A-Za-z._]+"
_ID: Final = re.compile(r"[^/\x00-\x1f\x7f]{1,1024}")
_NAME: Final = re.compile(r"(?!\.{1,2}$)[^/\\\x00-\x1f\x7f]*[^/\\\s\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*")


class LoadRequest(NamedTuple):
    """A model to load.

    Attributes:
        id: by which SageMaker knows it, a hash in practice.
        name: of the model in responses and statistics.
        folder: where its files lie.
    """

    id: str
    name: str
    folder: Path


def read_load_request(body: Body, headers: Mapping[str, str], root: Path) -> LoadRequest:
    """The request with this body; ``root`` is the folder below which models may lie.

    Raises:
        MalformedRequestError: it is no JSON object with two texts.
        InvalidArgumentError: the id cannot be part of a path, or the folder does not lie where SageMaker puts models.
    """
    values = read_settings(body)
    model_id, url = _text(values, "model_name"), _text(values, "url")
    if _ID.fullmatch(model_id) is None:
        raise InvalidArgumentError(
            f"Invalid \"model_name\" '{model_id}': expected a part of a path, up to 1024 characters without slashes"
        )
    target = headers.get(TARGET_HEADER, "")
    # An archive in a folder, "team/model.tar.gz", makes no name of a model.
    name = target if _NAME.fullmatch(target) else model_id
    return LoadRequest(model_id, name, _folder(url, root))


def _folder(url: str, root: Path) -> Path:
    path = os.path.normpath(url) if url and "\0" not in url else ""
    place = re.escape(str(root))
    if re.fullmatch(f"{place}/{_PART}/model(?:/{_PART})?", path) is None:
        raise InvalidArgumentError(
            f"Invalid \"url\" '{url}': expected a path of the form {root}/<hash>/model[/<subdir>]"
        )
    return Path(path)


def _text(values: Mapping[str, Any], name: str) -> str:
    found = values.get(name, "")
    if not isinstance(found, str):
        raise MalformedRequestError(f"Unable to parse '{name}': expected a text, found {type(found).__name__}")
    return found
