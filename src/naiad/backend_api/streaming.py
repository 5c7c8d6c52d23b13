"""The contract of an in-process backend whose models respond from coroutines, in a thread that runs an asyncio loop.

Such a model may respond any number of times, may wait without keeping other requests from running, and may take long
for a response: it holds up its own thread at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.config.spec import InstanceGroupSpec
from naiad.errors import InternalError

SIDE_BY_SIDE: Final = 1024
"""How many requests an instance runs side by side, if it waits rather than computes."""


class StreamingInstance(ABC):
    """One executable copy of a model. It is created, used and closed in its own thread.

    Attributes:
        max_open: how many requests it takes at a time: 1 for a model that never awaits.
    """

    max_open: int = SIDE_BY_SIDE

    @abstractmethod
    def responses(self, inputs: Arrays) -> AsyncGenerator[Arrays, None]:
        """The responses to one request; the end of the iterator is the end of the responses.

        The iterator is closed when the caller has gone.

        Args:
            inputs: those of the request, without a copy. They may be read-only.

        Raises:
            Exception: from the iterator: whatever the model raises is the last response.
        """

    def close(self) -> None:
        """Release the resources of the instance. Called once."""
        return


class StreamingBackend(Backend):
    """A backend whose instances are ``StreamingInstance``."""

    @abstractmethod
    def create_streaming(self, group: InstanceGroupSpec, index: int) -> StreamingInstance:
        """A new instance; called in the thread that will use it."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Never called: its instances respond from coroutines."""
        raise InternalError("a streaming backend has no instances that run batches")


@dataclass(frozen=True, slots=True)
class CallerRequest:
    """A request as a model sees it that gets requests rather than gathered batches.

    Attributes:
        inputs: without a copy; they may be read-only.
        parameters: of the request.
        outputs: the names of the wanted outputs.
    """

    inputs: Arrays
    parameters: Mapping[str, bool | int | float | str]
    outputs: tuple[str, ...]


class RequestListInstance(ABC):
    """One executable copy of a model that gets the requests of a batch as a list. It is created, used and closed in its
    own thread.

    Attributes:
        max_open: how many batches it takes at a time: 1 for a model that never awaits.
        deadline_s: how long a request may take in seconds, from its arrival to its last response; 0 for no limit.
    """

    max_open: int = 1
    deadline_s: float = 0.0

    @abstractmethod
    def responses(self, requests: Sequence[CallerRequest]) -> AsyncGenerator[Sequence[Arrays], None]:
        """The responses to the requests of a batch: each item has one response for each request.

        A model with one response for each request yields once. The iterator is closed when all callers have gone.

        Raises:
            Exception: from the iterator: whatever the model raises is the last response to each request.
        """

    def close(self) -> None:
        """Release the resources of the instance. Called once."""
        return


class RequestListBackend(Backend):
    """A backend whose instances are ``RequestListInstance``."""

    @abstractmethod
    def create_request_list(self, group: InstanceGroupSpec, index: int) -> RequestListInstance:
        """A new instance; called in the thread that will use it."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Never called: its instances respond from coroutines."""
        raise InternalError("a backend of request lists has no instances that run gathered batches")
