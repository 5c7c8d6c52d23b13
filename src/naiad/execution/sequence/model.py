"""A loaded model version with sequences. Belongs to the event loop."""

from __future__ import annotations

from naiad.config.spec import SequenceSpec
from naiad.errors import InternalError, InvalidArgumentError, UnavailableError
from naiad.execution.model.dispatcher import Dispatcher
from naiad.execution.model.loaded_model import MAX_ID, LoadedModel
from naiad.execution.model.rate_limits import RateLimits
from naiad.execution.model.responder import stopping_error
from naiad.execution.sequence.dispatcher import SequenceDispatcher
from naiad.execution.sequence.step import correlation_is_text, wrong_id_type
from naiad.request import SEQUENCE_START, InferRequest


class SequenceModel(LoadedModel):
    """A model whose requests belong to sequences: each sequence runs on one instance, one request after the other.

    When another version takes its place, its sequences continue here to their ends: that version passes their requests
    on.
    """

    _sequences: SequenceDispatcher

    def _make_queue(self, limits: RateLimits | None) -> Dispatcher:
        # ``LoadedModel.__init__`` calls this, so attributes that it needs are set here.
        self._is_followed = False
        self._before: list[SequenceModel] = []
        self._after: list[SequenceModel] = []
        self._named_by_texts = correlation_is_text(self._options)
        self._sequences = SequenceDispatcher(self.spec, self._options, self._loop, self._responder, limits)
        self._responder.has_more = self._waits_for_sequences
        return self._sequences

    @property
    def _options(self) -> SequenceSpec:
        if self.spec.sequence is None:
            raise InternalError(f"model '{self.name}' has no sequences")
        return self.spec.sequence

    # The path of a request

    def submit(self, request: InferRequest) -> None:
        """Queue a checked request at the end of its sequence; see ``LoadedModel.submit``.

        Raises:
            InvalidArgumentError: the request has no correlation id, or begins no sequence while there is none with its
                id, or has more than one row.
        """
        queue, options = self._sequences, request.options
        if self._before and not options.flags & SEQUENCE_START and not queue.sequences.is_live(options.correlation_id):
            for model in self._before:
                if model.has_sequence(options.correlation_id):
                    request.retarget(model)
                    model.submit(request)
                    return
        # A live sequence continues to its end, also while the model stops.
        if self._stopping and not queue.sequences.is_live(options.correlation_id):
            raise stopping_error()
        # After the look at earlier versions: these check their requests by their own configuration.
        self._check(request)
        if queue.outage is not None:
            raise UnavailableError(str(queue.outage))
        responder = self._responder
        responder.admit(request)
        try:
            queue.push(request)
        except BaseException:
            responder.release(request)
            raise
        self._statistics.pending += 1
        queue.pushed(request)

    def _check(self, request: InferRequest) -> None:
        options = request.options
        if options.rows != 1:
            raise InvalidArgumentError(
                f"inference request to model '{self.name}' must specify batch-size 1 due to requirements of sequence "
                "batcher"
            )
        if not options.correlation_id and not self._options.iterative:
            raise InvalidArgumentError(
                f"inference request to model '{self.name}' must specify a non-zero or non-empty correlation ID"
            )
        is_text = self._named_by_texts
        if is_text is not None and options.correlation_id and isinstance(options.correlation_id, str) is not is_text:
            raise wrong_id_type(self.name, self._options, request)
        if len(request.id) > MAX_ID and self._sends_requests:
            raise InvalidArgumentError(
                f"the id of a request to model '{self.name}' has {len(request.id)} characters; at most {MAX_ID} reach "
                "the process of a model"
            )

    # Versions that take its place

    def has_sequence(self, correlation_id: int | str) -> bool:
        """Whether a sequence with that id is live here."""
        return self._sequences.sequences.is_live(correlation_id)

    def follow(self, model: SequenceModel) -> None:
        """Take the place of ``model``, where its sequences continue."""
        # Sequences of versions before that one may still be live.
        for before in (*model._before, model):
            if before._has_same_tensors(self):
                before._is_followed = True
                before._after.append(self)
                self._before.append(before)

    @property
    def has_live(self) -> bool:
        """Whether there are live sequences."""
        return self._sequences.sequences.has_live

    @property
    def is_busy(self) -> bool:
        """Whether a caller waits for a response, or a live sequence would lose its state."""
        return super().is_busy or self.has_live

    def _has_same_tensors(self, other: LoadedModel) -> bool:
        ours, theirs = self.spec, other.spec
        return (
            ours.inputs == theirs.inputs
            and ours.outputs == theirs.outputs
            and (ours.max_batch_size, ours.decoupled) == (theirs.max_batch_size, theirs.decoupled)
        )

    def _waits_for_sequences(self) -> bool:
        return self._is_followed and self.has_live

    def detach(self) -> None:
        for model in self._after:
            model._before.remove(self)
        self._after.clear()
        super().detach()
