"""Checks the requests of a model with sequences, and has sequences continue in the version that they began in.

Belongs to the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Protocol

from naiad.config.spec import ModelSpec, SequenceSpec
from naiad.errors import InvalidArgumentError
from naiad.execution.model.responder import stopping_error
from naiad.execution.sequence.step import correlation_is_text, wrong_id_type
from naiad.request import SEQUENCE_START, InferRequest, Recipient
from naiad.scheduling.sequence.slots import Sequences


class EarlierVersion(Recipient, Protocol):
    """A version whose place another one has taken, and in which sequences continue to their ends."""

    def has_sequence(self, correlation_id: int | str) -> bool:
        """Whether a sequence with that id is live there."""


class SequenceInterceptor:
    """Sees the requests of a model with sequences before they are queued; an ``Interceptor``.

    Args:
        spec: of the model.
        options: its section ``sequence_batching``.
        sequences: of the model.
        before: the versions whose place this one has taken; the model changes the list.
    """

    def __init__(
        self, spec: ModelSpec, options: SequenceSpec, sequences: Sequences, before: Items[EarlierVersion]
    ) -> None:
        self._name = spec.name
        self._options = options
        self._sequences = sequences
        self._named_by_texts = correlation_is_text(options)
        self._before = before
        self._forget: list[Callable[[], object]] = []
        self._is_followed = False

    def intercept(self, request: InferRequest, is_stopping: bool) -> bool:
        """Pass a request on to an earlier version that has its sequence, or check it.

        Raises:
            ServerStoppingError: the model stops, and no sequence with its id is live.
            InvalidArgumentError: the request has no correlation id, or one of the wrong type, or more than one row.
        """
        options, is_live = request.options, self._sequences.is_live
        if self._before and not options.flags & SEQUENCE_START and not is_live(options.correlation_id):
            for model in self._before:
                if model.has_sequence(options.correlation_id):
                    request.retarget(model)
                    model.submit(request)
                    return True
        # A live sequence continues to its end, also while the model stops.
        if is_stopping and not is_live(options.correlation_id):
            raise stopping_error()
        # After the look at earlier versions: these check their requests by their own configuration.
        self._check(request)
        return False

    def _check(self, request: InferRequest) -> None:
        options = request.options
        if options.rows != 1:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify batch-size 1 due to requirements of sequence "
                "batcher"
            )
        if not options.correlation_id and not self._options.iterative:
            raise InvalidArgumentError(
                f"inference request to model '{self._name}' must specify a non-zero or non-empty correlation ID"
            )
        is_text = self._named_by_texts
        if is_text is not None and options.correlation_id and isinstance(options.correlation_id, str) is not is_text:
            raise wrong_id_type(self._name, self._options, request)

    # Versions that take its place

    def followed(self, forget: Callable[[], object]) -> None:
        """Another version passes requests on to this one, until ``forget`` is called at its end."""
        self._is_followed = True
        self._forget.append(forget)

    def waits_for_sequences(self) -> bool:
        """Whether the version has to stay for its live sequences: another one passes their requests on."""
        return self._is_followed and self._sequences.has_live

    def close(self) -> None:
        for forget in self._forget:
            forget()
        self._forget.clear()
