"""The names of the reference's Python package ``tritonserver``: ``from naiad import api as tritonserver``.

A server of this process (``Server``), its models, and requests to them without a network.
"""

from __future__ import annotations

from enum import StrEnum

from naiad.errors import AlreadyExistsError, InternalError, InvalidArgumentError, NotFoundError, UnavailableError
from naiad.errors import NaiadError as TritonError
from naiad.errors import UnknownError as UnknownError
from naiad.errors import UnsupportedError as UnsupportedError
from naiad.inprocess.model import Model
from naiad.inprocess.model_dictionary import ModelDictionary
from naiad.inprocess.request import LocalRequest as InferenceRequest
from naiad.inprocess.responses import AsyncResponses as AsyncResponseIterator
from naiad.inprocess.responses import LocalResponse as InferenceResponse
from naiad.inprocess.responses import Responses as ResponseIterator
from naiad.inprocess.server import Server
from naiad.inprocess.tensors import LocalTensor as Tensor
from naiad.tensor.dtypes import DataType


class ModelControlMode(StrEnum):
    """When models are loaded and unloaded."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"


__all__ = [
    "AlreadyExistsError",
    "AsyncResponseIterator",
    "DataType",
    "InferenceRequest",
    "InferenceResponse",
    "InternalError",
    "InvalidArgumentError",
    "Model",
    "ModelControlMode",
    "ModelDictionary",
    "NotFoundError",
    "ResponseIterator",
    "Server",
    "Tensor",
    "TritonError",
    "UnavailableError",
    "UnknownError",
    "UnsupportedError",
]
