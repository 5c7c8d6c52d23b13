"""``TritonModelConfig``: the configuration of a model on the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from naiad.pytriton.model_config.common import DeviceKind, DynamicBatcher, ModelWarmup, QueuePolicy, TimeoutAction

__all__ = [
    "DeviceKind",
    "DynamicBatcher",
    "ModelWarmup",
    "QueuePolicy",
    "ResponseCache",
    "TensorSpec",
    "TimeoutAction",
    "TritonModelConfig",
]


@dataclass
class ResponseCache:
    """Whether responses are cached."""

    enable: bool


@dataclass
class TensorSpec:
    """An input or an output with its name; attributes as ``Tensor``."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    optional: bool | None = False


@dataclass
class TritonModelConfig:
    """The configuration of a model on the server.

    Attributes:
        model_version: 1 where the server does not say.
        instance_group: how many instances of each kind.
        backend_parameters: the ``parameters`` of the configuration.
        inputs, outputs: None for none.
    """

    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: DynamicBatcher | None = None
    instance_group: dict[DeviceKind, int | None] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: dict[str, str] = field(default_factory=dict)
    inputs: Sequence[TensorSpec] | None = None
    outputs: Sequence[TensorSpec] | None = None
    response_cache: ResponseCache | None = None
    model_warmup: list[ModelWarmup] | None = None

    @property
    def backend(self) -> str:
        """The backend that runs it."""
        return "python"
