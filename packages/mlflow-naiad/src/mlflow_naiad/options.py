"""The options of a deployment, from ``-C name=value``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from mlflow.exceptions import MlflowException

from naiad.config.read import ConfigFormat, parse_config
from naiad.errors import NaiadError

PARAMETER: Final = "parameters."
NAMES: Final = ("config", "max_batch_size", "instances", "canary", "repository")


@dataclass(frozen=True, slots=True)
class DeploymentOptions:
    """What ``-C`` says.

    Attributes:
        config: fields of the model's configuration, as JSON values.
        canary: the share of a new version in percent; None for all requests.
        repository: the folder that the deployment is written to; None for none.
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    canary: int | None = None
    repository: Path | None = None


def read_options(given: Mapping[str, Any] | None) -> DeploymentOptions:
    """The options in ``given``.

    Raises:
        MlflowException: one is unknown, or its value makes no sense.
    """
    given = dict(given or {})
    if unknown := [name for name in given if name not in NAMES and not name.startswith(PARAMETER)]:
        raise wrong(
            f"-C {unknown[0]}: there is no such option, expected one of {', '.join(NAMES)} or {PARAMETER}<name>"
        )
    config = _file(str(given["config"])) if "config" in given else {}
    if "max_batch_size" in given:
        config["max_batch_size"] = _number("max_batch_size", given["max_batch_size"], 0, 2**31 - 1)
    if "instances" in given:
        config["instance_group"] = [{"count": _number("instances", given["instances"], 1, 1024)}]
    named = {name.removeprefix(PARAMETER): value for name, value in given.items() if name.startswith(PARAMETER)}
    if named:
        texts = {name: {"string_value": str(value)} for name, value in named.items()}
        config["parameters"] = {**config.get("parameters", {}), **texts}
    canary = _number("canary", given["canary"], 0, 100) if "canary" in given else None
    return DeploymentOptions(config, canary, _repository(given.get("repository")))


def _repository(given: object) -> Path | None:
    folder = given or os.environ.get("NAIAD_MODEL_REPO")
    if not folder:
        return None
    path = Path(str(folder))
    if not path.is_dir():
        raise wrong(f"the repository '{path}' is no folder, expected one that the server serves")
    return path


def _file(name: str) -> dict[str, Any]:
    try:
        text = Path(name).read_text(encoding="utf-8")
        return config_fields(text, is_json=text.lstrip().startswith("{"))
    except OSError as error:
        raise wrong(f"-C config={name}: {error.strerror}") from None
    except NaiadError as error:
        raise wrong(f"-C config={name}: {error}") from None


def config_fields(text: str, *, is_json: bool = False) -> dict[str, Any]:
    """The fields of a configuration that are set, as JSON values.

    Raises:
        ConfigError: it is no model configuration.
    """
    file_format = ConfigFormat.JSON if is_json else ConfigFormat.PBTXT
    message = parse_config(text, file_format).config
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _number(name: str, value: object, least: int, most: int) -> int:
    text = str(value)
    if not text.isdigit() or not least <= int(text) <= most:
        raise wrong(f"-C {name}={json.dumps(value)}: expected a whole number from {least} to {most}")
    return int(text)


def wrong(text: str) -> MlflowException:
    """An error of the caller."""
    return MlflowException.invalid_parameter_value(text)
