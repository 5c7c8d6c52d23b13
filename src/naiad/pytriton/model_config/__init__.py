"""What a model takes, returns, and how its requests are batched."""

from naiad.pytriton.model_config.common import DeviceKind, DynamicBatcher, QueuePolicy, TimeoutAction
from naiad.pytriton.model_config.model_config import ModelConfig
from naiad.pytriton.model_config.tensor import Tensor

__all__ = ["DeviceKind", "DynamicBatcher", "ModelConfig", "QueuePolicy", "Tensor", "TimeoutAction"]
