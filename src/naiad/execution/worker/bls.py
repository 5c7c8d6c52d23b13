"""Calls of other models by a model in a process (BLS): the server's side.

Source: the reference's Python backend. Whatever goes wrong with a call is a response to it, with an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import orjson

from naiad.errors import (
    CancelledError,
    InternalError,
    InvalidArgumentError,
    NaiadError,
    ResponseBacklogError,
    UnavailableError,
    UnsupportedError,
)
from naiad.execution.model_directory import CalledInput, ModelDirectory, Target
from naiad.execution.worker.bls_responses import CallResponses
from naiad.execution.worker.bls_waits import WaitingCalls
from naiad.execution.worker.codec.client_memory import OutgoingFrame
from naiad.execution.worker.codec.writer import BatchWriter
from naiad.execution.worker.in_flight import InFlightRequests
from naiad.request import (
    NO_PARAMETERS,
    Array,
    BatchTimes,
    InferRequest,
    Parameters,
    Recipient,
    RequestOptions,
    RequestTrace,
    TracedOptions,
    request_label,
)
from naiad.scheduling.flow_control import BACKPRESSURE_TIMEOUT_MS
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import BY_WIRE
from naiad.tensor.packed_bytes import PackedStrings, as_strings, stays_packed
from naiad.worker.ipc.frame_body import aligned, raw_array
from naiad.worker.ipc.frames import COUNT, FLAG_FINAL, PLACE, REQUEST

logger = logging.getLogger("naiad")

MAX_CALLS: Final = 4096
"""The most calls that one worker may have open."""
PAUSE_WAITING: Final = 64
"""The frames that wait for a worker when the decoupled models that it called are paused."""
MAX_WAITING: Final = 1024
"""The frames that wait when the calls of such models are cancelled."""


class BlsCallSchema:
    """The common part of calls with equal descriptions. ``options`` caches their checked options by model."""

    __slots__ = ("correlation_id", "flags", "inputs", "options", "outputs", "parameters", "timeout_us")

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.inputs = [CalledInput(name, BY_WIRE[wire], tuple(shape)) for name, wire, shape in described["inputs"]]
        self.outputs: Sequence[str] = described["outputs"]
        self.parameters: Parameters = described.get("parameters") or NO_PARAMETERS
        self.timeout_us: int = described.get("timeout_us", 0)
        self.flags: int = described.get("flags", 0)
        self.correlation_id: int | str = described.get("correlation_id", 0)
        self.options: WeakKeyDictionary[Target, RequestOptions] = WeakKeyDictionary()


class Called(NamedTuple):
    """A call as it came: its head, its schema, and the bytes of its inputs, which are held with it."""

    head: Mapping[str, Any]
    schema: BlsCallSchema
    raws: list[Array]
    size: int


class CalledRequest(InferRequest):
    """The request of a call; its responses go to the worker that called."""

    __slots__ = ("_batch", "_calls", "_model", "number", "target")
    # The calling request was admitted and holds its place; refusing its calls would waste the work done for it.
    can_be_refused = False

    def __init__(
        self,
        calls: BlsCalls,
        number: int,
        target: Target,
        options: RequestOptions,
        inputs: Mapping[str, Array],
        id: str,
    ) -> None:
        super().__init__(options, inputs, id, monotonic_ns())
        self._calls = calls
        self.number = number
        self.target: Recipient = target
        self._model = target.spec.name
        self._batch: BatchTimes | None = None

    def joined(self, batch: BatchTimes) -> None:
        """Note the batch, whose times the trace has."""
        self._batch = batch

    def end_trace(self, error: NaiadError | None) -> None:
        """End the trace of a call that is traced."""
        options = self.options
        if type(options) is TracedOptions:
            options.trace.end_call(self, self._model, self.target.version, self._batch, error)

    def retarget(self, recipient: Recipient) -> None:
        """Have another version run the request."""
        self.target = recipient

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        """Send the only response to the call."""
        self._calls.respond(self, None if error is not None else outputs, error, True)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        """Send one response of a decoupled model."""
        self._calls.respond(self, outputs, error, final)


class BlsCalls:
    """The calls of one worker. Used on the event loop only.

    Args:
        models: the models that it can call; None when there are no others, as in a check without a server.
        writer: writes schemas and segments for the worker.
        open_segment: the bytes of a tensor that lies in a segment of the worker, by number, offset and size.
        send: sends frames to the worker.
        waiting: how many frames wait because the worker does not read.
        trace_of: the trace of the worker's own request with that number; None when it is not traced.
    """

    def __init__(
        self,
        models: ModelDirectory | None,
        writer: BatchWriter,
        open_segment: Callable[[int, int, int], Array],
        send: Callable[[list[OutgoingFrame]], None],
        waiting: Callable[[], int],
        trace_of: Callable[[int], RequestTrace | None] = lambda number: None,
    ) -> None:
        self._models = models
        self._open_segment = open_segment
        self._responses = CallResponses(writer, send)
        self._waiting = waiting
        self._trace_of = trace_of
        self._schemas: dict[int, BlsCallSchema] = {}
        self._running: dict[int, CalledRequest] = {}
        self._held: set[CalledRequest] = set()
        self._waits: WaitingCalls[Called] = WaitingCalls()

    # Schemas

    def learn(self, number: int, raw: bytes) -> bool:
        """Read a schema; False when it is not a schema of calls."""
        if b'"inputs"' not in raw or "inputs" not in (described := orjson.loads(raw)):
            return False
        self._schemas[number] = BlsCallSchema(described)
        return True

    def forget(self) -> None:
        """All schemas are void."""
        self._schemas.clear()

    # Calls

    def call(self, number: int, payload: bytearray) -> None:
        """Pass a call on to the model that it names; responses come later, an error if that is not possible."""
        try:
            called = self._read(payload)
        except Exception:
            # The model's process wrote it, and the loop serves other models.
            self._fail(number)
            return
        self._begin(number, called)

    def _begin(self, number: int, called: Called) -> None:
        try:
            try:
                self._submit(number, called)
            except NaiadError as error:
                # ``_submit`` may have failed after it had registered the call.
                self._running.pop(number, None)
                if not self._waits_for_model(number, called, error):
                    raise
        except NaiadError as error:
            self._refuse_call(number, called, error)
        except Exception:
            self._fail(number)

    def _waits_for_model(self, number: int, called: Called, error: NaiadError) -> bool:
        models = self._models
        return models is not None and self._waits.wait(models, number, called, called.size, error, self._resume_call)

    def _resume_call(self, number: int, called: Called, problem: NaiadError | None) -> None:
        """Go on with a call when the model that it waited for is loaded; refuse it when it could not be loaded."""
        if problem is None:
            self._begin(number, called)
        else:
            self._refuse_call(number, called, problem)

    def _fail(self, number: int) -> None:
        logger.exception("a call of another model failed")
        self._refuse(number, InternalError("the call failed inside the server, see its log"))

    def _submit(self, number: int, called: Called) -> None:
        request = self._request(number, called)
        if len(self._running) + len(self._waits) >= MAX_CALLS:
            raise UnavailableError(
                f"{request_label(request.id)}the process of the model has {MAX_CALLS} calls of other models open, "
                "as many as it may: wait for some of them first"
            )
        # Before ``submit``, within which the model may respond.
        self._running[number] = request
        request.target.submit(request)

    def cancel(self, number: int) -> None:
        """Cancel a call."""
        request = self._running.get(number)
        if request is not None:
            request.target.cancel(request)
        elif (called := self._waits.leave(number)) is not None:
            self._refuse_call(number, called, CancelledError("the call was cancelled"))

    def cancel_with(self, requests: InFlightRequests) -> None:
        """Cancel all calls if nobody waits for any of ``requests``, for which they are made.

        Each call gets a response: its result, or the error of a cancelled call.
        """
        if (self._running or len(self._waits)) and requests.nobody_waits:
            # A copy: a call that is cancelled may respond at once and leave. The last first: a call that waits behind
            # another must not begin as that one ends.
            for request in reversed(list(self._running.values())):
                request.target.cancel(request)
            for number, called in self._waits.leave_all():
                self._refuse_call(number, called, CancelledError("the call was cancelled"))

    def close(self) -> None:
        """Cancel all calls of a worker that is gone."""
        # Emptied first: the responses to cancelled calls are then dropped, as no worker is there to take them.
        running, self._running = self._running, {}
        self._held.clear()
        self._waits.leave_all()
        for request in reversed(running.values()):
            request.target.cancel(request)

    def respond(
        self, request: CalledRequest, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool
    ) -> None:
        """Send one response; ``outputs`` and ``error`` None: only the end."""
        number = request.number
        if final:
            request.end_trace(error)
        # A call that was refused, or whose worker is gone, may still get responses.
        if self._running.get(number) is not request:
            return
        if final:
            del self._running[number]
            self._held.discard(request)
        elif (waiting := self._waiting()) > MAX_WAITING:
            # Before ``cancel``: the response to that is dropped, since the call gets this error.
            del self._running[number]
            self._held.discard(request)
            request.target.cancel(request)
            text = "the responses come faster than the calling model takes them: the call was cancelled"
            error = ResponseBacklogError(request_label(request.id) + text)
            self._responses.send_error(number, error, FLAG_FINAL)
            return
        elif waiting > PAUSE_WAITING and request not in self._held:
            self._held.add(request)
            request.target.pause(request, BACKPRESSURE_TIMEOUT_MS)
        end = FLAG_FINAL if final else 0
        if error is not None:
            self._responses.send_error(number, error, end)
        elif outputs is None:
            self._responses.send_empty(number, end)
        else:
            self._responses.send_outputs(number, request, outputs, end)

    def drained(self) -> None:
        """Resume the models that were paused: the worker has read all that waited for it."""
        held, self._held = self._held, set()
        for request in held:
            request.target.resume(request)

    # Reading

    def _read(self, payload: bytearray) -> Called:
        head, at = _head(payload)
        _, schema_number, id_bytes, _ = REQUEST.unpack_from(payload, at)
        at += REQUEST.size
        schema = self._schemas[schema_number]
        places = [PLACE.unpack_from(payload, at + i * PLACE.size) for i in range(len(schema.inputs))]
        data = at + len(places) * PLACE.size + id_bytes
        data = aligned(data)
        # Before anything that can fail: a segment is released when nothing refers to its tensor any more.
        raws = [raw_array(self._open_segment, payload, place, data) for place in places]
        return Called(head, schema, raws, len(payload) + sum(place[-1] for place in places if place[0]))

    def _request(self, number: int, called: Called) -> CalledRequest:
        head, schema, raws, _ = called
        target = self._find(head)
        request_id = str(head.get("id", ""))
        options = self._options(schema, target, request_id)
        inputs = {
            given.name: _tensor(raw, given, target.spec.name, request_id)
            for given, raw in zip(schema.inputs, raws, strict=True)
        }
        request = CalledRequest(self, number, target, options, inputs, request_id)
        # The number is there if the model passed the trace of its request on to the call.
        caller = self._trace_of(int(head.get("parent", 0)))
        trace = None if caller is None else caller.begin_call()
        if trace is not None:
            request.options = TracedOptions(options, trace)
            target.note_batches()
        return request

    def _find(self, head: Mapping[str, Any]) -> Target:
        if self._models is None:
            raise UnsupportedError("there are no other models to be called here")
        name, version = str(head["model"]), int(head.get("version", -1))
        target = self._models.find(name, None if version == -1 else str(version))
        if target.spec.decoupled and not head.get("decoupled"):
            raise UnsupportedError(
                f"Model {name} is using the decoupled. The current BLS request call doesn't support models using the "
                "decoupled transaction policy. Please use 'decoupled=True' argument to the 'exec' or 'async_exec' "
                "calls for decoupled models.'"
            )
        return target

    def _options(self, schema: BlsCallSchema, target: Target, request_id: str) -> RequestOptions:
        found = schema.options.get(target)
        if found is None and self._models is not None:
            checked = self._models.check(target.spec, schema.inputs, schema.outputs, request_id)
            # Keyed weakly by the model, so that an unloaded one is not held.
            found = schema.options[target] = RequestOptions(
                checked.outputs,
                checked.rows,
                checked.shape_key,
                schema.parameters,
                timeout_us=schema.timeout_us,
                flags=schema.flags,
                correlation_id=schema.correlation_id,
            )
        if found is None:
            raise InternalError("a call without models to be called")
        return found

    # Errors

    def _refuse(self, number: int, error: NaiadError, began: str = "") -> None:
        self._running.pop(number, None)
        self._responses.send_error(number, error, FLAG_FINAL, began)

    def _refuse_call(self, number: int, called: Called, error: NaiadError) -> None:
        # The reference's text: the call failed, and not the calling model's own request.
        self._refuse(number, error, f"Model {called.head['model']} - Error when running inference: ")


def _head(payload: bytearray) -> tuple[Mapping[str, Any], int]:
    """The head of a call, and where it ends."""
    head_bytes, _ = COUNT.unpack_from(payload)
    end = COUNT.size + head_bytes
    head: Mapping[str, Any] = orjson.loads(memoryview(payload)[COUNT.size : end])
    return head, end


def _tensor(raw: Array, given: CalledInput, model: str, request_id: str) -> Array:
    place = f"inference input '{given.name}' for model '{model}'"
    if given.dtype.is_bytes:
        if stays_packed(raw.nbytes, given.elements):
            # The worker wrote as many elements as the shape has, so they are not counted again.
            return as_strings(PackedStrings(raw.data, given.shape, request_label(request_id) + place))
        try:
            return decode_bytes(raw.tobytes(), given.elements, place).reshape(given.shape)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(request_label(request_id) + str(error)) from None
    expected = given.elements * given.dtype.itemsize
    if raw.nbytes != expected:
        raise InvalidArgumentError(
            f"{request_label(request_id)}{place} has {raw.nbytes} bytes, its shape {list(given.shape)} needs {expected}"
        )
    return raw.view(given.dtype.numpy).reshape(given.shape)
