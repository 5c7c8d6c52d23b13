"""A loaded version of a model with sequences, made of parts that know sequences. Belongs to the event loop."""

from __future__ import annotations

import asyncio
from functools import partial

from naiad.backend_api.backend import Backend
from naiad.clock import Clock
from naiad.config.spec import ModelSpec
from naiad.errors import InternalError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model_directory import ModelDirectory
from naiad.execution.sequence.interceptor import SequenceInterceptor
from naiad.execution.sequence.scheduler import SequenceScheduler
from naiad.scheduling.admission import RequestBudget
from naiad.scheduling.sequence.strategies import make_sequence_batcher
from naiad.scheduling.testing import delayed_sequences
from naiad.telemetry.metrics.custom import CustomMetrics


class SequenceModel(LoadedModel):
    """A model whose requests belong to sequences: each sequence runs on one instance, one request after the other.

    It chooses the parts of a ``LoadedModel`` and overrides nothing. When another version takes its place, its sequences
    continue here to their ends: that version passes their requests on.
    """

    def __init__(
        self,
        spec: ModelSpec,
        version: int,
        backend: Backend,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
        models: ModelDirectory | None = None,
        metrics: CustomMetrics | None = None,
        budget: RequestBudget | None = None,
        limits: RateLimits | None = None,
    ) -> None:
        section = spec.sequence
        if section is None:
            raise InternalError(f"model '{spec.name}' has no sequences")
        self._sequences = delayed_sequences(make_sequence_batcher(section, spec.instance_count, spec.max_batch_size))
        self._before: list[SequenceModel] = []
        self._interception = SequenceInterceptor(spec, section, self._sequences.sequences, self._before)
        super().__init__(
            spec,
            version,
            backend,
            loop,
            clock,
            models,
            metrics,
            budget=budget,
            limits=limits,
            make_scheduler=partial(SequenceScheduler, section, self._sequences),
            interceptor=self._interception,
        )
        self._responder.has_more = self._interception.waits_for_sequences

    def has_sequence(self, correlation_id: int | str) -> bool:
        """Whether a sequence with that id is live here."""
        return self._sequences.sequences.is_live(correlation_id)

    def follow(self, model: SequenceModel) -> None:
        """Take the place of ``model``, where its sequences continue."""
        # Sequences of versions before that one may still be live.
        for earlier in (*model._before, model):
            if _have_same_tensors(earlier.spec, self.spec):
                self._before.append(earlier)
                earlier._interception.followed(partial(self._before.remove, earlier))


def _have_same_tensors(one: ModelSpec, other: ModelSpec) -> bool:
    return (
        one.inputs == other.inputs
        and one.outputs == other.outputs
        and (one.max_batch_size, one.decoupled) == (other.max_batch_size, other.decoupled)
    )
