"""Reads configurations of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from naiad.config.messages import message_class
from naiad.pytriton.exceptions import PyTritonModelConfigError
from naiad.pytriton.model_config.common import (
    DeviceKind,
    DynamicBatcher,
    ModelWarmup,
    QueuePolicy,
    TimeoutAction,
    WarmupInput,
)
from naiad.pytriton.model_config.datatypes import numpy_type
from naiad.pytriton.model_config.triton_model_config import ResponseCache, TensorSpec, TritonModelConfig


class ModelConfigParser:
    """Reads the configuration of a model, as the server shows it or as a file has it."""

    @classmethod
    def from_dict(cls, model_config_dict: Mapping[str, Any]) -> TritonModelConfig:
        """Read a configuration that is a dictionary.

        Raises:
            PyTritonModelConfigError: a tensor lacks its name, datatype or shape.
        """
        given = model_config_dict
        batching, cache = given.get("dynamic_batching"), given.get("response_cache")
        rows = given.get("max_batch_size", 0)
        return TritonModelConfig(
            model_name=given["name"],
            batching=rows > 0,
            max_batch_size=rows,
            batcher=None if batching is None else _batcher(batching),
            inputs=_tensors("input", given),
            outputs=_tensors("output", given),
            instance_group={DeviceKind(e["kind"]): e.get("count") for e in given.get("instance_group", [])},
            decoupled=given.get("model_transaction_policy", {}).get("decoupled", False),
            backend_parameters=_parameters(given.get("parameters", {})),
            response_cache=ResponseCache(bool(cache["enable"])) if cache else None,
            model_warmup=[_warmup(entry) for entry in given.get("model_warmup", [])] or None,
        )

    @classmethod
    def from_file(cls, *, config_path: Path) -> TritonModelConfig:
        """Read a ``config.pbtxt``; errors as ``from_dict``."""
        message = text_format.Parse(config_path.read_text(encoding="utf-8"), message_class("ModelConfig")())
        return cls.from_dict(json_format.MessageToDict(message, preserving_proto_field_name=True))

    @classmethod
    def rewrite_io_spec(cls, item: Mapping[str, Any], io_type: str, idx: int) -> TensorSpec:
        """Read a tensor, the ``idx``-th ``input`` or ``output``; errors as ``from_dict``."""
        name = item.get("name")
        if not name:
            raise PyTritonModelConfigError(f"Name for {io_type} at index {idx} not provided.")
        subject = f"{io_type} with name `{name}`"
        dtype = numpy_type(item.get("data_type"), subject)
        shape = _shape(item.get("dims", ()), subject)
        return TensorSpec(name, shape, dtype, item.get("optional", False))


def _tensors(kind: str, given: Mapping[str, Any]) -> list[TensorSpec] | None:
    found = given.get(kind, [])
    return [ModelConfigParser.rewrite_io_spec(item, kind, index) for index, item in enumerate(found)] or None


def _shape(dims: Any, subject: str) -> tuple[int, ...]:
    if not dims:
        raise PyTritonModelConfigError(f"Dimension for {subject} not defined.")
    return tuple(int(size) for size in dims)


def _parameters(given: Any) -> dict[str, str]:
    if isinstance(given, list):
        return dict.fromkeys(given, "")
    if isinstance(given, Mapping):
        return {name: value.get("string_value", "") for name, value in given.items()}
    raise TypeError(f"Invalid type for backend_parameters_config: {type(given)}")


def _batcher(given: Mapping[str, Any]) -> DynamicBatcher:
    default, by_priority = given.get("default_queue_policy"), given.get("priority_queue_policy")
    return DynamicBatcher(
        preferred_batch_size=given.get("preferred_batch_size"),
        max_queue_delay_microseconds=int(given.get("max_queue_delay_microseconds", 0)),
        preserve_ordering=bool(given.get("preserve_ordering", False)),
        priority_levels=int(given.get("priority_levels", 0)),
        default_priority_level=int(given.get("default_priority_level", 0)),
        default_queue_policy=_policy(default) if default else None,
        priority_queue_policy={int(p): _policy(e) for p, e in by_priority.items()} if by_priority else None,
    )


def _policy(given: Mapping[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        timeout_action=TimeoutAction(given.get("timeout_action", TimeoutAction.REJECT.value)),
        default_timeout_microseconds=int(given.get("default_timeout_microseconds", 0)),
        allow_timeout_override=bool(given.get("allow_timeout_override", False)),
        max_queue_size=int(given.get("max_queue_size", 0)),
    )


def _warmup(given: Mapping[str, Any]) -> ModelWarmup:
    inputs = {name: _warmup_input(name, entry) for name, entry in given["inputs"].items()}
    return ModelWarmup(given["name"], given["batch_size"], inputs, given["count"])


def _warmup_input(name: str, given: Mapping[str, Any]) -> WarmupInput:
    return WarmupInput(
        dtype=numpy_type(given.get("data_type"), name),
        shape=_shape(given.get("dims", ()), name),
        random_data=given.get("random_data", False),
        zero_data=given.get("zero_data", False),
        input_data_file=given.get("input_data_file"),
    )
