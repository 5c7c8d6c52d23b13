"""Configurations as files, and as commands that load them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format

from naiad.analyze.errors import TrialError
from naiad.config.export import config_pbtxt
from naiad.config.messages import message_class


def pbtxt_of(config: Mapping[str, Any]) -> str:
    """A configuration as a config.pbtxt.

    Raises:
        TrialError: it is none.
    """
    message = message_class("ModelConfig")()
    groups = config.get("instance_group", [])
    # Servers make the names of groups up; in a file they are only in the way.
    plain = {**config, "instance_group": [{k: v for k, v in group.items() if k != "name"} for group in groups]}
    try:
        json_format.ParseDict(plain, message, ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise TrialError(f"no configuration: {error}") from None
    return config_pbtxt(message)


def load_command(model: str, config: Mapping[str, Any], endpoint: str) -> str:
    """The command that loads a model with a configuration.

    Args:
        endpoint: where the server speaks HTTP.
    """
    body = json.dumps({"parameters": {"config": json.dumps(config)}})
    address = f"http://{endpoint}/v2/repository/models/{model}/load"
    return f"curl -X POST {shlex.quote(address)} -d {shlex.quote(body)}"
