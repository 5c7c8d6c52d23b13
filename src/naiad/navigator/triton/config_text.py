"""The original's configurations as the text of a ``config.pbtxt``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from google.protobuf import json_format

from naiad.config.export import config_pbtxt
from naiad.config.messages import message_class
from naiad.navigator.exceptions import ModelNavigatorWrongParameterError
from naiad.navigator.triton.configs import BaseSpecializedModelConfig
from naiad.navigator.triton.sequences import (
    FALSE_TRUE,
    SequenceBatcherConfig,
    SequenceBatcherControl,
    SequenceBatcherState,
    SequenceBatcherStrategyOldest,
)
from naiad.navigator.triton.settings import (
    AutoMixedPrecisionAccelerator,
    BaseTensorSpec,
    GPUIOAccelerator,
    InputTensorSpec,
    InstanceGroup,
    ModelWarmup,
    ModelWarmupInput,
    Optimization,
    OutputTensorSpec,
    TensorRTAccelerator,
    TensorRTOptimization,
)
from naiad.pytriton.exceptions import PyTritonBadParameterError
from naiad.pytriton.model_config import DynamicBatcher, QueuePolicy
from naiad.pytriton.model_config.datatypes import config_type

Fields = dict[str, Any]
_MIB: Final = 2**20


def config_text(name: str, config: BaseSpecializedModelConfig) -> str:
    """The text of a model's configuration.

    Raises:
        ModelNavigatorWrongParameterError: a value is none that a configuration can have.
    """
    try:
        text = config_pbtxt(json_format.ParseDict(_fields(name, config), message_class("ModelConfig")()))
    except json_format.ParseError as error:
        raise ModelNavigatorWrongParameterError(f"the configuration of model '{name}': {error}") from None
    # Protobuf leaves out what is 0, and without it the server would choose a size.
    return text if config.batching else f"{text}max_batch_size: 0\n"


def _fields(name: str, config: BaseSpecializedModelConfig) -> Fields:
    found: Fields = {
        "name": name,
        "max_batch_size": config.max_batch_size if config.batching else 0,
        "input": [_input(spec) for spec in config.inputs],
        "output": [_output(spec) for spec in config.outputs],
        "instance_group": [_group(group) for group in config.instance_groups],
        "parameters": {key: {"string_value": str(value)} for key, value in config.parameters.items()},
        "model_warmup": [_warmup(*entry) for entry in config.warmup.items()],
    }
    if config.platform is not None or not config.backend:
        found["platform"] = config.platform or config.platforms[0]
    else:
        found["backend"] = config.backend
    if config.default_model_filename:
        found["default_model_filename"] = config.default_model_filename
    if config.batching:
        found |= _scheduling(config.batcher)
    if config.response_cache:
        found["response_cache"] = {"enable": True}
    if config.optimization is not None:
        found["optimization"] = _optimization(config.optimization)
    return found


def _given(**fields: Any) -> Fields:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value}


def _data_type(dtype: Any, subject: str) -> str:
    found = np.dtype(np.float32 if dtype is None else dtype)
    if found.kind in "SUO":
        return "TYPE_STRING"
    try:
        return config_type(found.type)
    except PyTritonBadParameterError as error:
        raise ModelNavigatorWrongParameterError(f"{subject}: {error}") from None


def _tensor(spec: BaseTensorSpec) -> Fields:
    found: Fields = {"name": spec.name, "dims": list(spec.shape) or [1], "data_type": _data_type(spec.dtype, spec.name)}
    if spec.reshape or not spec.shape:
        # A row without axes of its own has one of size 1.
        found["reshape"] = {"shape": list(spec.reshape)}
    return found | _given(is_shape_tensor=spec.is_shape_tensor)


def _input(spec: InputTensorSpec) -> Fields:
    form = None if spec.format is None else spec.format.name
    return _tensor(spec) | _given(optional=spec.optional, format=form, allow_ragged_batch=spec.allow_ragged_batch)


def _output(spec: OutputTensorSpec) -> Fields:
    return _tensor(spec) | _given(label_filename=spec.label_filename)


def _group(group: InstanceGroup) -> Fields:
    # The names of devices that conversions take, such as "cpu", do as well.
    kind = f"KIND_{str(group.kind).upper().rpartition('_')[2]}" if group.kind is not None else None
    return _given(
        kind={"KIND_CUDA": "KIND_GPU"}.get(kind, kind) if kind else None,
        count=group.count,
        name=group.name,
        gpus=list(group.gpus),
        passive=group.passive,
        host_policy=group.host_policy,
        profile=list(group.profile),
    )


def _policy(policy: QueuePolicy | None) -> Fields | None:
    if policy is None:
        return None
    return {
        "timeout_action": policy.timeout_action.value,
        "default_timeout_microseconds": int(policy.default_timeout_microseconds),
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": int(policy.max_queue_size),
    }


def _scheduling(batcher: DynamicBatcher | SequenceBatcherConfig) -> Fields:
    if isinstance(batcher, SequenceBatcherConfig):
        return {"sequence_batching": _sequences(batcher)}
    return {"dynamic_batching": _batcher(batcher)}


def _batcher(batcher: DynamicBatcher) -> Fields:
    by_priority = batcher.priority_queue_policy or {}
    for priority in (batcher.default_priority_level, *by_priority):
        if not 0 <= priority <= batcher.priority_levels:
            raise ModelNavigatorWrongParameterError(
                f"found priority {priority}, expected 1 to priority_levels={batcher.priority_levels}"
            )
    return _given(
        max_queue_delay_microseconds=int(batcher.max_queue_delay_microseconds),
        preferred_batch_size=[int(size) for size in batcher.preferred_batch_size or ()],
        preserve_ordering=batcher.preserve_ordering,
        priority_levels=batcher.priority_levels,
        default_priority_level=batcher.default_priority_level,
        default_queue_policy=_policy(batcher.default_queue_policy),
        priority_queue_policy={priority: _policy(policy) for priority, policy in by_priority.items()},
    )


def _sequences(batcher: SequenceBatcherConfig) -> Fields:
    inputs = batcher.control_inputs
    found = _given(
        max_sequence_idle_microseconds=batcher.max_sequence_idle_microseconds,
        control_input=[{"name": one.input_name, "control": list(map(_control, one.controls))} for one in inputs],
        state=[_state(state) for state in batcher.states],
    )
    strategy = batcher.strategy
    if strategy is not None:
        fields = {
            name: list(value) if name == "preferred_batch_size" else value for name, value in vars(strategy).items()
        }
        found["oldest" if isinstance(strategy, SequenceBatcherStrategyOldest) else "direct"] = _given(**fields)
    return found


def _control(control: SequenceBatcherControl) -> Fields:
    found = _given(**{name: list(getattr(control, name)) for name in FALSE_TRUE})
    if control.dtype is not None:
        found["data_type"] = _data_type(control.dtype, control.kind)
    return found | {"kind": control.kind}


def _state(state: SequenceBatcherState) -> Fields:
    initial = [
        {"name": one.name, "dims": list(one.shape), "data_type": _data_type(one.dtype, one.name)}
        | ({"data_file": one.data_file.name} if one.data_file else {"zero_data": True})
        for one in state.initial_states
    ]
    return {
        "input_name": state.input_name,
        "output_name": state.output_name,
        "dims": list(state.shape),
        "data_type": _data_type(state.dtype, state.input_name),
        "initial_state": initial,
    }


def _warmup(name: str, warmup: ModelWarmup) -> Fields:
    inputs = {tensor: _warmup_input(tensor, given) for tensor, given in warmup.inputs.items()}
    return {"name": name, "batch_size": warmup.batch_size, "count": warmup.iterations, "inputs": inputs}


def _warmup_input(name: str, given: ModelWarmupInput) -> Fields:
    found = {"dims": list(given.shape), "data_type": _data_type(given.dtype, name)}
    if given.input_data_file is not None:
        return found | {"input_data_file": given.input_data_file.name}
    return found | {f"{given.input_data_type.lower()}_data": True}


def _optimization(given: Optimization) -> Fields:
    if isinstance(given, TensorRTOptimization):
        return _given(
            cuda={"graphs": True} if given.cuda_graphs else None,
            eager_batching=given.eager_batching,
            gather_kernel_buffer_threshold=given.gather_kernel_buffer_threshold,
        )
    accelerator = given.accelerator
    if isinstance(accelerator, TensorRTAccelerator):
        entry: Fields = {"name": "tensorrt", "parameters": _tensorrt_parameters(accelerator)}
    elif isinstance(accelerator, AutoMixedPrecisionAccelerator):
        entry = {"name": "auto_mixed_precision"}
    elif isinstance(accelerator, GPUIOAccelerator):
        entry = {"name": "gpu_io"}
    else:
        return {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "openvino"}]}}
    return {"execution_accelerators": {"gpu_execution_accelerator": [entry]}}


def _tensorrt_parameters(accelerator: TensorRTAccelerator) -> Mapping[str, str]:
    found = _given(
        max_workspace_size_bytes=(accelerator.max_workspace_size or 0) * _MIB,
        precision_mode=accelerator.precision.upper(),
        max_cached_engines=accelerator.max_cached_engines,
        minimum_segment_size=accelerator.minimum_segment_size,
    )
    return {name: str(value) for name, value in found.items()}
