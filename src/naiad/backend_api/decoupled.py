"""The contract of an in-process backend whose models send any number of responses to a request.

Its instances do not push responses: the server pulls one step after the other. A caller that does not read thus blocks
no other request, and no response is computed before it can be sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from naiad.backend_api.backend import Arrays, Backend, Instance
from naiad.config.spec import InstanceGroupSpec
from naiad.errors import InternalError, NaiadError


@dataclass(frozen=True, slots=True)
class Delay:
    """A step that waits for ``seconds``.

    ``writes``: the outputs of the next response are computed from here on; statistics count the time separately.
    ``can_be_cut``: the wait ends at once when the caller cancels.
    """

    seconds: float
    writes: bool = False
    can_be_cut: bool = True


Step = Arrays | NaiadError | Delay | None
"""A response (arrays by output name), an error in its place, a wait, or None: a response that is empty, which is
counted and not sent."""


class Requester(Protocol):
    """The caller, as an instance sees it."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the caller cancelled. No further response reaches it then."""


class DecoupledInstance(ABC):
    """One executable copy of a model. It is used on the event loop: a step takes microseconds and never blocks."""

    @abstractmethod
    def steps(self, inputs: Arrays, outputs: Sequence[str], requester: Requester) -> Iterator[Step]:
        """The steps that execute one request, pulled one by one. The end of the steps is the end of its responses.

        Args:
            inputs: those of the request, without a copy. They may be read-only.
            outputs: the names of the requested outputs; no others may be returned.
            requester: tells whether the caller still waits.

        Raises:
            NaiadError: from the iterator: the last response, instead of outputs.
        """

    def busy_s(self, inputs: Arrays) -> float:
        """The time in seconds during which no other request may begin; 0, the default, for none at all."""
        return 0.0

    def close(self) -> None:
        """Release the resources of the instance. Called once."""
        return


class DecoupledBackend(Backend):
    """A backend whose instances are ``DecoupledInstance``."""

    @abstractmethod
    def create_decoupled(self, group: InstanceGroupSpec, index: int) -> DecoupledInstance:
        """A new instance."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Never called: its instances have no single response."""
        raise InternalError("a decoupled backend has no instances with one answer")
