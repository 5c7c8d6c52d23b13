"""``ModelConfig``: how a bound model runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from naiad.pytriton.model_config.common import DynamicBatcher, ModelWarmup


@dataclass
class ModelConfig:
    """How a model runs.

    Attributes:
        batching: whether inputs have a batch dimension.
        max_batch_size: the most rows of one call.
        batcher: how requests are put together.
        response_cache: whether responses are cached; needs ``TritonConfig(cache_config=...)``.
        decoupled: whether a request gets any number of responses.
        model_warmup: requests that run before the model serves.
        deadline_s: how long a request may take on the server in seconds, the queue included; None for no limit. This is
            Naiad's own.
    """

    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    decoupled: bool = False
    model_warmup: list[ModelWarmup] | None = None
    deadline_s: float | None = None
