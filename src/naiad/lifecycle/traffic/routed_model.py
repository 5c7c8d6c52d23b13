"""A model whose requests go to several of its versions. For front ends it is a model like any other.

Their plans for it stay valid: all its versions have the same inputs and outputs. A request is retargeted to its
version (``InferRequest.retarget``) before it is submitted, so that its response names it. Models without routes have
none of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from naiad.errors import ServerStoppingError
from naiad.execution.instances.model_instance import NO_REGIONS
from naiad.request import SEQUENCE_END, SEQUENCE_START, InferRequest, RequestOptions
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.traffic.weighted_split import WeightedSplit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from naiad.config.spec import ModelSpec
    from naiad.execution.model.interface import LoadedVersion, ServingModel
    from naiad.lifecycle.traffic.shadow import ShadowTraffic
    from naiad.scheduling.traffic.sticky import StickyVersions

_NOT_RUN: Final = "the versions of model '%s' have changed: send the request again"


class RoutedModel:
    """The responder to one route of a model. Used on the event loop only; replaced whenever anything of it changes.

    Args:
        shares: the versions that take requests, with their weights.
        versions: all that can take them, by number: a sequence stays with its version when that loses its share.
        sequences: the version of each sequence.
        shadow: gets copies of requests.
    """

    # Versions may be on different devices.
    device = None
    # Copies of requests read the inputs too.
    arena = None
    groups = None
    may_write_inputs = False
    __slots__ = (
        "__weakref__",
        "_budget",
        "_is_closed",
        "_only",
        "_reserved",
        "_sequences",
        "_shadow",
        "_shares",
        "_split",
        "_versions",
        "name",
        "regions_from",
        "spec",
        "version",
    )

    def __init__(
        self,
        shares: Sequence[tuple[LoadedVersion, int]],
        versions: Mapping[int, LoadedVersion],
        sequences: StickyVersions,
        shadow: ShadowTraffic | None = None,
    ) -> None:
        first = shares[0][0]
        self.name: str = first.name
        self.spec: ModelSpec = first.spec
        self.version: int = first.version
        self._budget = first.budget
        # Copies of requests go to other versions too, and a client's shared memory is read once.
        self.regions_from = NO_REGIONS if shadow is not None else max(m.regions_from for m in versions.values())
        self._shares = tuple(shares)
        self._only = first if len(shares) == 1 else None
        self._split = WeightedSplit(shares)
        self._versions = dict(versions)
        self._sequences = sequences
        self._shadow = shadow
        self._reserved = 0
        self._is_closed = False

    @property
    def problem(self) -> str:
        """Why versions that have a share do not work, "" when they do."""
        return "; ".join(f"version {m.version}: {m.problem}" for m, _ in self._shares if m.problem)

    @property
    def parts(self) -> tuple[ServingModel, ...]:
        """The models that run the requests of all its versions; errors as ``ServingModel.parts``."""
        return tuple(part for model in self._versions.values() for part in model.parts)

    @property
    def budget(self) -> RequestBudget:
        """The budget of all models."""
        return self._budget

    def check_room(self, size: int) -> None:
        """Check the room of the first of its versions; errors as ``LoadedModel.check_room``."""
        if self._shares:
            self._shares[0][0].check_room(size)

    @property
    def shares(self) -> dict[int, int]:
        """The weights of the versions that take requests now."""
        return {model.version: weight for model, weight in self._shares}

    def submit(self, request: InferRequest) -> None:
        """Submit a request to the version whose turn it is, or to the version of its sequence.

        Errors as ``LoadedModel.submit``.
        """
        if self._is_closed:
            raise ServerStoppingError(_NOT_RUN % self.name)
        target, shadow = self._choose(request.options)
        if shadow is not None:
            shadow.watch(request, target, target.submit)
            return
        request.retarget(target)
        target.submit(request)

    def _choose(self, options: RequestOptions) -> tuple[LoadedVersion, ShadowTraffic | None]:
        """The version for a request, and the shadow that gets a copy of it."""
        if options.correlation_id:
            # No shadow: it would lack the sequence's state wherever it missed an earlier request.
            return self._of_sequence(options.correlation_id, options.flags), None
        shadow = self._shadow
        return self._only or self._split.take(), shadow if shadow is not None and shadow.wants() else None

    def reserve(self) -> None:
        """Reserve a place for a request: a version of now will respond to it, whatever is loaded meanwhile."""
        # One place at each version stands for all expected requests: none has chosen its version yet.
        if not self._reserved:
            for model in self._versions.values():
                model.reserve()
        self._reserved += 1

    def submit_reserved(self, request: InferRequest) -> None:
        """Submit a request that was accepted with ``reserve``."""
        try:
            target, shadow = self._choose(request.options)
            # A place of its own, before the shared one is released: the version must not close in between.
            target.reserve()
            if shadow is not None:
                shadow.watch(request, target, target.submit_reserved)
                return
            request.retarget(target)
            target.submit_reserved(request)
        finally:
            self.release()

    def release(self) -> None:
        """Release the place of a request that was expected and does not come."""
        self._reserved -= 1
        if self._reserved:
            return
        for model in list(self._versions.values()):
            model.release()
        if self._is_closed:
            self._forget()

    def cancel(self, request: InferRequest) -> None:
        """Do nothing: a request refers to the version that it was handed to, and is cancelled there."""

    def pause(self, request: InferRequest, backpressure_timeout_ms: int) -> None:
        """Nothing: see ``cancel``."""

    def resume(self, request: InferRequest) -> None:
        """Nothing: see ``cancel``."""

    def note_batches(self) -> None:
        """Call ``LoadedModel.note_batches`` of all its versions."""
        for model in self._versions.values():
            model.note_batches()

    def close(self) -> None:
        """Accept nothing more, and release the versions once every expected request has come."""
        self._is_closed = True
        if not self._reserved:
            self._forget()

    def _forget(self) -> None:
        self._shares = ()
        self._only = self._shadow = None
        self._versions.clear()

    def _of_sequence(self, correlation_id: int | str, flags: int) -> LoadedVersion:
        sequences = self._sequences
        # A START begins another sequence, for which the weights decide anew.
        number = None if flags & SEQUENCE_START else sequences.version(correlation_id)
        target = None if number is None else self._versions.get(number)
        if target is None:
            target = self._only or self._split.take()
        if flags & SEQUENCE_END:
            sequences.forget(correlation_id)
        else:
            sequences.keep(correlation_id, target.version)
        return target
