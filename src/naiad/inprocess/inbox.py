"""Where the event loop takes the requests of the program's threads, and submits them to models."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from naiad.bounded_dict import BoundedDict
from naiad.engine.engine import Engine
from naiad.engine.request_validation import check_request
from naiad.errors import CancelledError, InternalError, InvalidArgumentError, NaiadError, UnavailableError
from naiad.execution.model.interface import ServingModel
from naiad.inprocess.loop_thread import LoopThread
from naiad.inprocess.request import PendingRequest, RequestSchema, SubmittedRequest
from naiad.request import NO_PARAMETERS, RequestOptions, memory_of, request_label

MAX_PLANS: Final = 1024
"""How many schemas of one model are remembered with what was found out about them."""
_PAUSE_MS: Final = 60_000


class EngineInbox:
    """Takes requests from any thread. One wake-up of the loop is for all requests that have come by then."""

    def __init__(self, thread: LoopThread, engine: Engine) -> None:
        self._thread = thread
        self._engine = engine
        self._pending: deque[PendingRequest] = deque()
        self._is_woken = False
        self._plans: dict[ServingModel, BoundedDict[RequestSchema, RequestOptions]] = {}
        engine.follow(self)

    def forget(self, model: ServingModel) -> None:
        """Drop what is known of the requests to a model that is unloaded."""
        self._plans.pop(model, None)

    # From any thread

    def post(self, pending: PendingRequest) -> None:
        """Hand a request over.

        Raises:
            UnavailableError: the server is not started, or stopped.
        """
        self._pending.append(pending)
        if not self._is_woken:
            self._is_woken = True
            self._thread.soon(self._drain)

    def cancel(self, pending: PendingRequest) -> None:
        """Give a request up; nothing happens once it is complete, or the server has stopped."""
        try:
            self._thread.soon(self._cancel, pending)
        except UnavailableError:
            return

    def resume(self, pending: PendingRequest) -> None:
        """Let the model of a paused request go on."""
        try:
            self._thread.soon(self._resume, pending)
        except UnavailableError:
            return

    # On the event loop

    def pause(self, pending: PendingRequest) -> None:
        """Let the model of a request make no further responses for now."""
        if (request := pending.submitted) is not None:
            request.recipient.pause(request, _PAUSE_MS)

    def _resume(self, pending: PendingRequest) -> None:
        if (request := pending.submitted) is not None:
            request.recipient.resume(request)

    def _cancel(self, pending: PendingRequest) -> None:
        pending.is_cancelled = True
        if (request := pending.submitted) is not None:
            request.recipient.cancel(request)

    def _drain(self) -> None:
        # First: what comes from here on wakes the loop again.
        self._is_woken = False
        pending = self._pending
        while pending:
            self._submit(pending.popleft())

    def _submit(self, pending: PendingRequest) -> None:
        try:
            if pending.is_cancelled:
                raise CancelledError(f"{request_label(pending.id)}the request was cancelled by its caller")
            model = self._engine.find(pending.name, pending.version)
            plans = self._plans.get(model)
            options = None if plans is None else plans.get(pending.schema)
            if options is None:
                options = self._plan(model, pending)
            request = pending.submitted = SubmittedRequest(pending, options, pending.arrays, model)
            model.submit(request)
        except NaiadError as error:
            if not self._waits(pending, error):
                pending.take(None, error, True)
        except Exception as error:
            pending.take(None, InternalError(f"{type(error).__name__}: {error}"), True)

    def _waits(self, pending: PendingRequest, error: NaiadError) -> bool:
        """Whether the request waits for its model to be loaded."""
        try:
            done = partial(self._loaded, pending)
            return self._engine.wait_for_model(error, memory_of(pending.arrays), done) is not None
        except NaiadError as refused:
            pending.take(None, refused, True)
            return True

    def _loaded(self, pending: PendingRequest, error: NaiadError | None) -> None:
        if error is not None:
            pending.take(None, error, True)
        else:
            self._submit(pending)

    def _plan(self, model: ServingModel, pending: PendingRequest) -> RequestOptions:
        schema = pending.schema
        fit, outputs = check_request(model.spec, schema.inputs, schema.outputs, pending.id)
        options = RequestOptions(
            outputs,
            fit.rows,
            fit.shape_key,
            dict(schema.parameters) or NO_PARAMETERS,
            schema.priority,
            schema.timeout_us,
            schema.flags,
            schema.correlation_id,
        )
        # Requests of sequences differ in their ids, so they would fill this for nothing.
        if not schema.correlation_id:
            self._plans.setdefault(model, BoundedDict(MAX_PLANS))[schema] = options
        return options


def check_version(version: int | str) -> str:
    """The version as look-ups take it: "" for the newest one.

    Raises:
        InvalidArgumentError: it is neither a number nor the name of an alias.
    """
    if isinstance(version, str):
        return version
    if type(version) is not int or version < -1 or version == 0:
        raise InvalidArgumentError(f"the version is {version!r}, expected a number from 1 on, or -1 for the newest one")
    return "" if version < 0 else str(version)
