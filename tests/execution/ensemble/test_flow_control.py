"""``max_inflight_requests`` of an ensemble: how many requests of a step run at a time, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from naiad.errors import NaiadError
from naiad.execution.ensemble.flow_control import InFlightLimit
from naiad.execution.ensemble.step_request import MemberRequest
from naiad.request import Array, InferRequest, RequestOptions
from naiad.scheduling.ensemble.graph import EnsembleStep
from naiad.scheduling.ensemble.progress import Frame, Task
from support.loaded_models import Caller


class Steps:
    """Runs steps: those of ``at_once`` end when they begin, the others when they are told to."""

    is_over = False

    def __init__(
        self, most: int, at_once: Sequence[str] = (), ended: Callable[[str], object] = lambda name: None
    ) -> None:
        self.request: InferRequest = Caller(1.0)
        self.limit = InFlightLimit(most)
        self.begun: list[str] = []
        self._at_once = at_once
        self._ended = ended

    def submit(self, request: MemberRequest) -> None:
        """As ``Run.submit``."""
        name = str(request.options.correlation_id)
        self.begun.append(name)
        if name in self._at_once:
            self.limit.has_ended(request)
            self._ended(name)

    def step_responded(
        self, request: MemberRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """As ``Run.step_responded``."""

    def start(self, name: str, index: int = 0) -> MemberRequest:
        """A request of the step ``index`` that may run as soon as it is its turn."""
        task = Task(Frame(0, [], [], [], 0), EnsembleStep(index, "m", (), ()))
        request = MemberRequest(self, task, Target(), RequestOptions((), correlation_id=name), {})
        self.limit.start(request)
        return request


class Target:
    """Whom requests are sent to."""

    version = 1

    def cancel(self, request: InferRequest) -> None:
        """As ``Recipient.cancel``."""

    def submit(self, request: InferRequest) -> None:
        """As ``Recipient.submit``."""

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """As ``Recipient.pause``."""

    def resume(self, request: InferRequest) -> None:
        """As ``Recipient.resume``."""


def test_no_more_than_so_many_run_and_each_step_for_itself() -> None:
    steps = Steps(2)
    first = [steps.start(name) for name in "abcd"]
    steps.start("other", index=1)
    assert steps.begun == ["a", "b", "other"]
    steps.limit.has_ended(first[1])
    assert steps.begun == ["a", "b", "other", "c"]


def test_those_that_wait_are_next_whatever_comes_while_a_place_is_free() -> None:
    steps = Steps(1, at_once=["b"], ended=lambda name: steps.start("new"))
    first = steps.start("a")
    for name in "bc":
        steps.start(name)
    # The second one ends as it begins, and its caller sends another request before the third has begun.
    steps.limit.has_ended(first)
    assert steps.begun == ["a", "b", "c"]


def test_whoever_gives_up_takes_no_turn() -> None:
    steps = Steps(1)
    first = steps.start("a")
    given_up = steps.start("b")
    last = steps.start("c")
    steps.limit.give_up(given_up)
    steps.limit.has_ended(first)
    assert steps.begun == ["a", "c"]
    steps.limit.has_ended(last)
    steps.start("d")
    assert steps.begun == ["a", "c", "d"]


def test_without_a_bound_all_run() -> None:
    steps = Steps(0)
    for name in "abc":
        steps.start(name)
    assert steps.begun == ["a", "b", "c"]
