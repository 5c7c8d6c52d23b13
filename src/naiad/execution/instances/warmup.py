"""Warming instances up: each runs the samples of its version before it gets requests, and these runs are not counted.

An instance in this process runs them where it was created, in the thread that will use it; see
``execution/worker/warmup.py`` for workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from naiad.backend_api.backend import Instance
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from naiad.execution.batching.batch import Batch
from naiad.execution.instances.run_times import RunTimes
from naiad.execution.instances.runner import close_instance, run_once
from naiad.request import Array, InferRequest, RequestOptions

logger = logging.getLogger("naiad")

PROGRESS_S: Final = 10.0
"""How often the progress of a long warm-up is logged."""


# Weak references let instances share a sample, which is dropped after the last of them (``LazySamples``).
@dataclass(frozen=True, slots=True, weakref_slot=True)
class Sample:
    """Equal requests that run together, ``count`` times.

    Attributes:
        count: how often the batch runs.
        requests: how many requests are in it.
        options, inputs: of each request.
        is_needed: the version is not loaded when it fails; otherwise a warning is all.
    """

    name: str
    count: int
    requests: int
    options: RequestOptions
    inputs: Mapping[str, Array]
    is_needed: bool = True

    def batch(self) -> Batch:
        """A batch of new requests."""
        return Batch([InferRequest(self.options, self.inputs) for _ in range(self.requests)])


RunSample = Callable[[Batch], Sequence[str]]
"""Runs a batch, waits for its end and returns the texts of its errors."""


class Warmup:
    """The warm-up of the instances of one version, before they get requests.

    Args:
        samples: run one after another, by each instance.
        not_wanted: why it is to end before its time, "" while it is not; called in any thread.
        again: makes the samples once more, for an instance that comes back when they are forgotten.
        times: measures runs of the first sample on a warm instance; None for no measurement.
    """

    def __init__(
        self,
        samples: Sequence[Sample] = (),
        not_wanted: Callable[[], str] = lambda: "",
        again: Callable[[], Sequence[Sample]] = tuple,
        times: RunTimes | None = None,
    ) -> None:
        self.samples = samples
        self.times = times
        self.again = again
        self._not_wanted = not_wanted

    def creating(self, name: str, spec: ModelSpec, create: Callable[[], Instance]) -> Callable[[], Instance]:
        """``create`` with all samples behind it, for the instance ``name``; it raises what ``run_all`` raises."""
        if not self.samples:
            return create

        def create_warm() -> Instance:
            instance = create()

            def run(batch: Batch) -> Sequence[str]:
                # Not ``run_batch``: a sample that fails is not run again in halves.
                run_once(instance, batch, spec)
                return () if batch.error is None else (str(batch.error),)

            try:
                self.run_all(name, run)
            except BaseException:
                # The caller never gets to know the instance, so nobody else could close it.
                close_instance(instance, name)
                raise
            return instance

        return create_warm

    def run_all(self, name: str, run: RunSample) -> None:
        """Run all samples on the instance ``name``.

        Raises:
            ModelLoadError: a sample failed that is needed, or the warm-up is not wanted any more.
        """
        begun = said = monotonic()
        for sample in self.samples:
            logger.debug("'%s' runs warm-up sample '%s' %d time(s)", name, sample.name, sample.count)
            for turn in range(sample.count):
                self.check()
                now = monotonic()
                if now - said > PROGRESS_S:
                    said = now
                    place = f"run {turn + 1} of {sample.count} of sample '{sample.name}'"
                    logger.info("'%s' is warming up since %.0f s: %s", name, now - begun, place)
                if errors := run(sample.batch()):
                    _failed(name, sample, errors)
                    # Its further runs would fail alike.
                    break
        if self.times is not None and self.samples:
            first = self.samples[0]
            self.times.take(first.name, lambda: run(first.batch()))

    def forget(self) -> None:
        """Drop the samples, which may be large, as instances keep the function that created them."""
        self.samples = ()

    def check(self) -> None:
        """Check that the warm-up is still wanted.

        Raises:
            ModelLoadError: it is not.
        """
        if why := self._not_wanted():
            raise ModelLoadError(f"the warm-up was cancelled: {why}")


NO_WARMUP: Final = Warmup()


def _failed(name: str, sample: Sample, errors: Sequence[str]) -> None:
    # Each request of a batch may say the same.
    text = f"failed to run warmup sample '{sample.name}': {'; '.join(dict.fromkeys(errors))}"
    if sample.is_needed:
        raise ModelLoadError(text)
    logger.warning("instance '%s' is not warm: %s", name, text)
