"""What a backend in the server's own process is whose models answer a request any number of times.

Its instances do not send: they are asked for one step after the other. So a caller who does not take what it asked for
holds nobody up, and nothing is made that nobody takes.
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
    """Nothing happens for so many seconds.

    ``writes``: the outputs of the next response are being made from here on, which statistics tell apart.
    ``can_be_cut``: it ends at once when the caller gives up.
    """

    seconds: float
    writes: bool = False
    can_be_cut: bool = True


Step = Arrays | NaiadError | Delay | None
"""A response (arrays by output name), an error in its place, a wait, or None: a response that is empty, which is
counted and not sent."""


class Requester(Protocol):
    """Who asked, as an instance sees it."""

    @property
    def is_cancelled(self) -> bool:
        """The caller gave up. No further response reaches it."""


class DecoupledInstance(ABC):
    """One executable copy of a model. It is used on the event loop: a step takes microseconds and never blocks."""

    @abstractmethod
    def steps(self, inputs: Arrays, outputs: Sequence[str], asker: Requester) -> Iterator[Step]:
        """What is done for one request, asked for step by step. The end of the steps is the end of its responses.

        Args:
            inputs: of the request, as it carries them. They may be read-only.
            outputs: the names that are wanted; no others are given.
            asker: whether somebody waits still.

        Raises:
            NaiadError: from the iterator: the last response, instead of outputs.
        """

    def busy_s(self, inputs: Arrays) -> float:
        """For how long no other request may begin, in seconds; by default the next one may begin at once."""
        return 0.0

    def close(self) -> None:
        """Give back what it holds. Called once."""
        return


class DecoupledBackend(Backend):
    """A backend whose instances are ``DecoupledInstance``."""

    @abstractmethod
    def create_decoupled(self, group: InstanceGroupSpec, index: int) -> DecoupledInstance:
        """A new instance."""

    def create_instance(self, group: InstanceGroupSpec, index: int) -> Instance:
        """Never used: its instances have no single answer."""
        raise InternalError("a decoupled backend has no instances with one answer")
