"""Finding tensors by name, and what a model configuration says about one."""

from __future__ import annotations

from typing import Any, Dict

from .inference_request import InferenceRequest
from .inference_response import InferenceResponse
from .tensor import Tensor

Config = Dict[str, Any]


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The input of that name, None when the request has none."""
    return inference_request._input(name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The output of that name, None when the response has none."""
    for tensor in inference_response._tensors:
        if tensor._name == name:
            return tensor
    return None


def get_input_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an input in a configuration, None when it has no such input."""
    return _property(model_config, "input", name)


def get_output_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an output in a configuration, None when it has no such output."""
    return _property(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Config) -> bool:
    """Whether a configuration says that the model is decoupled."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _property(model_config: Config, kind: str, name: str) -> Config | None:
    return next((entry for entry in model_config.get(kind, ()) if entry["name"] == name), None)
