"""Writes configurations of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from naiad.config.messages import message_class
from naiad.pytriton.exceptions import PyTritonBadParameterError
from naiad.pytriton.model_config.common import DynamicBatcher, ModelWarmup, QueuePolicy, WarmupInput
from naiad.pytriton.model_config.datatypes import config_type
from naiad.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig


class ModelConfigGenerator:
    """Writes the configuration of one model."""

    def __init__(self, config: TritonModelConfig) -> None:
        self._config = config

    def to_file(self, config_path: str | Path) -> Any:
        """Write the configuration as ``config.pbtxt``; returns its message.

        Raises:
            PyTritonBadParameterError: it is wrong.
        """
        return write_config(self.get_config(), Path(config_path))

    def get_config(self) -> dict[str, Any]:
        """The configuration as a dictionary.

        Raises:
            PyTritonBadParameterError: it is wrong.
        """
        given = self._config
        config: dict[str, Any] = {"name": given.model_name, "backend": given.backend}
        config |= self._batching()
        if given.inputs:
            config["input"] = [_tensor(spec) for spec in given.inputs]
        if given.outputs:
            config["output"] = self._outputs([_tensor(spec) for spec in given.outputs])
        if given.instance_group:
            config["instance_group"] = [{"count": n, "kind": kind.value} for kind, n in given.instance_group.items()]
        if given.decoupled:
            config["model_transaction_policy"] = {"decoupled": True}
        if given.backend_parameters:
            config["parameters"] = {
                name: {"string_value": str(value)} for name, value in given.backend_parameters.items()
            }
        if given.response_cache:
            config["response_cache"] = {"enable": given.response_cache.enable}
        if given.model_warmup:
            config["model_warmup"] = [_warmup(warmup) for warmup in given.model_warmup]
        return config

    def _outputs(self, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if optional := [o["name"] for o in outputs if o.get("optional")]:
            raise PyTritonBadParameterError(
                f"Optional flag for outputs is not supported. Outputs marked as optional: {', '.join(optional)}."
            )
        return outputs

    def _batching(self) -> dict[str, Any]:
        given = self._config
        if not given.batching:
            return {"max_batch_size": 0}
        if given.max_batch_size < 1:
            raise PyTritonBadParameterError("The `max_batch_size` must be greater or equal to 1.")
        config: dict[str, Any] = {"max_batch_size": given.max_batch_size}
        if isinstance(given.batcher, DynamicBatcher):
            config["dynamic_batching"] = _batcher(given.batcher)
        return config


def write_config(config: Mapping[str, Any], path: Path) -> Any:
    """Write a configuration as ``config.pbtxt``; returns its message."""
    message = json_format.ParseDict(dict(config), message_class("ModelConfig")())
    text: str = text_format.MessageToString(message)
    if config["max_batch_size"] == 0:
        # Protobuf leaves out what is 0, and without it the server would choose a size.
        text += "max_batch_size: 0\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return message


def _batcher(batcher: DynamicBatcher) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if batcher.max_queue_delay_microseconds > 0:
        config["maxQueueDelayMicroseconds"] = int(batcher.max_queue_delay_microseconds)
    if batcher.preferred_batch_size:
        config["preferredBatchSize"] = [int(size) for size in batcher.preferred_batch_size]
    if batcher.preserve_ordering:
        config["preserveOrdering"] = True
    levels = batcher.priority_levels
    if levels:
        config["priorityLevels"] = levels
    if batcher.default_priority_level:
        if batcher.default_priority_level > levels:
            raise PyTritonBadParameterError(f"The `default_priority_level` must be between 1 and {levels}.")
        config["defaultPriorityLevel"] = batcher.default_priority_level
    if batcher.default_queue_policy:
        config["defaultQueuePolicy"] = _policy(batcher.default_queue_policy)
    if batcher.priority_queue_policy:
        config["priorityQueuePolicy"] = _policies(batcher.priority_queue_policy, levels)
    return config


def _policies(policies: dict[int, QueuePolicy], levels: int) -> dict[int, Any]:
    if not levels:
        raise PyTritonBadParameterError(
            "Provide the `priority_levels` if you want to define `priority_queue_policy` for Dynamic Batching."
        )
    for priority in policies:
        if not 0 <= priority <= levels:
            raise PyTritonBadParameterError(
                f"Invalid `priority`={priority} provided. The value must be between 1 and {levels}."
            )
    return {priority: _policy(policy) for priority, policy in policies.items()}


def _policy(policy: QueuePolicy) -> dict[str, Any]:
    return {
        "timeoutAction": policy.timeout_action.value,
        "defaultTimeoutMicroseconds": int(policy.default_timeout_microseconds),
        "allowTimeoutOverride": policy.allow_timeout_override,
        "maxQueueSize": int(policy.max_queue_size),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    found: dict[str, Any] = {"name": spec.name, "dims": list(spec.shape), "data_type": config_type(spec.dtype)}
    return found | ({"optional": True} if spec.optional else {})


def _warmup(warmup: ModelWarmup) -> dict[str, Any]:
    inputs = {name: _warmup_input(name, given) for name, given in warmup.inputs.items()}
    return {"name": warmup.name, "batch_size": warmup.batch_size, "inputs": inputs, "count": warmup.count}


def _warmup_input(name: str, given: WarmupInput) -> dict[str, Any]:
    if not (given.zero_data or given.random_data or given.input_data_file):
        raise PyTritonBadParameterError(
            f"One of the `zero_data`, `random_data`, or `input_data_file` must be provided for warmup input `{name}`."
        )
    if not given.shape:
        raise PyTritonBadParameterError(f"Dimension for {name} not defined.")
    found: dict[str, Any] = {"data_type": config_type(given.dtype), "dims": list(given.shape)}
    if given.zero_data:
        return found | {"zero_data": True}
    if given.random_data:
        return found | {"random_data": True}
    return found | {"input_data_file": given.input_data_file}
