"""Decorators of inference functions."""

from naiad.pytriton.decorators.batching import (
    InferenceRequest,
    InferenceRequests,
    InferenceResult,
    InferenceResults,
    InputNames,
    batch,
    convert_output,
    get_inference_request_batch_size,
    sample,
)
from naiad.pytriton.decorators.context import (
    ModelConfigDict,
    TritonContext,
    get_model_config,
    get_triton_context,
    triton_context,
)
from naiad.pytriton.decorators.grouping import ConstantPadder, group_by_keys, group_by_values
from naiad.pytriton.decorators.inputs import fill_optionals, first_value, pad_batch

__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "ModelConfigDict",
    "TritonContext",
    "batch",
    "convert_output",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "get_model_config",
    "get_triton_context",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]
