"""The part of a config.pbtxt that a configuration consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf import json_format

from naiad.config.export import config_pbtxt
from naiad.config.messages import message_class
from naiad.perf.advise.setup import ModelSetup

_FIELDS: Final = ("max_batch_size", "instance_group", "dynamic_batching")


def config_snippet(setup: ModelSetup, remarks: Sequence[str]) -> str:
    """The fields that advice is about, as lines of a config.pbtxt behind ``remarks``, which become comments."""
    fields: dict[str, Any] = {name: setup.config[name] for name in _FIELDS if name in setup.config}
    # Servers make the names of groups up; in a file they are only in the way.
    groups = [{name: value for name, value in group.items() if name != "name"} for group in fields["instance_group"]]
    message = message_class("ModelConfig")()
    json_format.ParseDict({**fields, "instance_group": groups}, message, ignore_unknown_fields=True)
    lines = [f"# {' '.join(remark.split())}" for remark in remarks]
    if setup.max_batch_size and not setup.is_batching:
        lines.append("# no dynamic_batching: remove it where the file has it")
    return "\n".join([*lines, config_pbtxt(message)])
