"""``triton_python_backend_utils``: what a ``model.py`` imports, also known as ``naiad.python_backend``."""

from __future__ import annotations

from ..ipc.bytes_codec import deserialize_bytes_tensor, serialize_byte_tensor
from ..ipc.datatypes import TRITON_STRING_TO_NUMPY, numpy_to_triton_type, triton_string_to_numpy, triton_to_numpy_type
from ..ipc.errors import TritonError, TritonModelException
from . import current
from .bls import ResponseIterator
from .call_options import (
    TRITONSERVER_MEMORY_CPU,
    TRITONSERVER_MEMORY_GPU,
    InferenceTrace,
    MemoryType,
    PreferredMemory,
)
from .control import is_model_ready, load_model, unload_model
from .inference_request import (
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_END,
    TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
)
from .inference_response import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceResponse
from .logger import Logger
from .lookups import (
    get_input_config_by_name,
    get_input_tensor_by_name,
    get_output_config_by_name,
    get_output_tensor_by_name,
    using_decoupled_model_transaction_policy,
)
from .metrics import Metric, MetricFamily, MetricKind
from .model_config import ModelConfig
from .response_sender import InferenceResponseSender
from .tensor import Tensor

__all__ = [
    "TRITONSERVER_MEMORY_CPU",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "InferenceResponseSender",
    "InferenceTrace",
    "Logger",
    "MemoryType",
    "Metric",
    "MetricFamily",
    "MetricKind",
    "ModelConfig",
    "PreferredMemory",
    "ResponseIterator",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "deserialize_bytes_tensor",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_model_dir",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "is_model_ready",
    "load_model",
    "numpy_to_triton_type",
    "serialize_byte_tensor",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "unload_model",
    "using_decoupled_model_transaction_policy",
]

_NAME = "triton_python_backend_utils"
for _public in list(vars().values()):
    if isinstance(_public, type) and _public.__module__.startswith(__package__):
        # The name under which models know it, in messages and in pickles.
        _public.__module__ = _NAME


def get_model_dir() -> str:
    """The folder of the model's version, which holds its file, or the data for a Python-based backend."""
    return current.running().model_directory
