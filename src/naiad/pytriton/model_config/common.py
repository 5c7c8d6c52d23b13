"""Parts of model configurations: queues, batches and warm-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class DeviceKind(Enum):
    """Where instances run."""

    KIND_AUTO = "KIND_AUTO"
    KIND_CPU = "KIND_CPU"
    KIND_GPU = "KIND_GPU"


class TimeoutAction(Enum):
    """What becomes of a request that waits too long: refused, or run behind all others."""

    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass
class QueuePolicy:
    """How long and how many requests wait.

    Attributes:
        timeout_action: for requests that have waited too long.
        default_timeout_microseconds: how long a request may wait, 0 for no limit.
        allow_timeout_override: whether a request may shorten that.
        max_queue_size: how many requests wait at most, 0 for no limit.
    """

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: int = 0
    allow_timeout_override: bool = False
    max_queue_size: int = 0


@dataclass
class DynamicBatcher:
    """How requests are put together.

    Attributes:
        max_queue_delay_microseconds: how long a request waits for others.
        preferred_batch_size: sizes that are run at once.
        preserve_ordering: whether responses are sent in the order of their requests.
        priority_levels: how many priorities there are.
        default_priority_level: of requests that name none.
        default_queue_policy: of all priorities that have none of their own.
        priority_queue_policy: by priority, from 1 on.
    """

    max_queue_delay_microseconds: int = 0
    preferred_batch_size: list[int] | None = None
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: dict[int, QueuePolicy] | None = None


@dataclass
class WarmupInput:
    """An input of a warm-up request. One of the last three says what it holds.

    Attributes:
        dtype: of numpy.
        shape: without the batch dimension.
        input_data_file: a ``.npy`` file, with or without the batch dimension.
    """

    dtype: Any
    shape: Sequence[int]
    zero_data: bool | None = False
    random_data: bool | None = False
    input_data_file: str | None = None


@dataclass
class ModelWarmup:
    """Requests that a function runs before it serves.

    Attributes:
        name: for the log.
        batch_size: rows of each request.
        inputs: by name.
        count: how many requests.
    """

    name: str
    batch_size: int
    inputs: dict[str, WarmupInput]
    count: int
