"""The engine's side of inference for one front-end process: requests come in, responses go back."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final

from naiad.errors import (
    INTERNAL_FAILURE,
    CancelledError,
    InternalError,
    NaiadError,
    QueueFullError,
    UnavailableError,
    caller_text,
)
from naiad.execution.batching.request_group import GroupOptions
from naiad.execution.model.group_queue import LEAST_ROWS
from naiad.execution.model_directory import CalledInput
from naiad.request import Array, Outputs, RequestOptions
from naiad.server.fronts.messages import (
    CANCEL,
    FAILURE,
    FORGET,
    INFER,
    INPUTS,
    OPTIONS,
    OUTPUTS,
    RESPONSE,
    RESPONSE_OF,
    RESPONSES,
)
from naiad.server.fronts.relayed_group import RelayedGroup
from naiad.server.fronts.relayed_request import GrpcRelayedRequest, HttpRelayedRequest, RelayedRequest, Row
from naiad.server.fronts.tensors import Layout, LayoutSender, TensorLayout, opened, received, row_bytes

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.execution.model.group_queue import GroupQueue
    from naiad.execution.model.interface import ServingModel
    from naiad.lifecycle.memory.load_on_demand import Waiting
    from naiad.server.fronts.link import Handlers, Link, Place
    from naiad.server.fronts.model_table import Announced, ModelTable
    from naiad.worker.ipc.lent_memory import LentMemory
    from naiad.worker.ipc.lent_tensors import MemoryFinder

logger = logging.getLogger("naiad")

_CLASSES: Final = {"HTTP": HttpRelayedRequest, "GRPC": GrpcRelayedRequest}


class InferenceSession:
    """Submits the requests of one front-end process to their models. ``close`` cancels what is still open."""

    def __init__(self, engine: Engine, table: ModelTable) -> None:
        self._engine = engine
        self._table = table
        self._open: dict[int, RelayedRequest] = {}
        self._waiting: dict[int, Waiting] = {}
        self._options: dict[int, RequestOptions] = {}
        self._inputs: dict[int, tuple[TensorLayout, ...]] = {}
        # By the numbers of their requests.
        self._grouped: dict[int, RelayedGroup] = {}
        # By layout.
        self._row_bytes: dict[int, int] = {}
        # By the options of the requests, and how many these are.
        self._group_options: dict[tuple[int, int], GroupOptions] = {}

    def connect(self, link: Link) -> None:
        """Respond over ``link``. Called before the first request."""
        self._link = link
        link.on_arena = self._take_arena
        self._outputs = LayoutSender(link, OUTPUTS)

    def handlers(self) -> Handlers:
        """What takes the front end's messages about inference."""
        return {
            OPTIONS: self._take_options,
            INPUTS: self._take_inputs,
            INFER: self._infer,
            CANCEL: self._cancel,
            FORGET: self._forget,
        }

    def close(self) -> None:
        """The front end is gone, and with it everybody who waits for a response."""
        for mark in [*self._open, *self._grouped]:
            self._cancel(mark)
        self._forget()

    # Messages of the front end

    def _take_arena(self, memory: LentMemory, model: int) -> None:
        """Let the workers of a model use the inputs that the front end receives for it."""
        known = self._table.get(model)
        arena = None if known is None else known.model.arena
        if arena is not None:
            arena.adopt(memory)

    def _take_options(self, number: int, fields: tuple[Any, ...]) -> None:
        self._options[number] = RequestOptions(*fields)

    def _take_inputs(self, number: int, layout: Layout) -> None:
        tensors = self._inputs[number] = received(layout)
        self._row_bytes[number] = row_bytes(tensors)

    def _forget(self) -> None:
        self._options.clear()
        self._group_options.clear()
        self._inputs.clear()
        self._row_bytes.clear()

    def _infer(self, model: int, options: int, layout: int, carrier: str, rows: list[Row]) -> None:
        """Submit requests that are alike."""
        wanted, kind = self._table.get(model), _CLASSES[carrier]
        found_options, tensors, link, requests = self._options[options], self._inputs[layout], self._link, self._open
        serving = self._serving(wanted)
        if len(rows) >= LEAST_ROWS and serving is not None and serving.groups is not None:
            rows = self._submit_groups(serving.groups, kind, options, layout, rows)
        arena = None if serving is None else serving.arena
        finder = None if arena is None else arena.outputs
        for mark, request_id, received_ns, queued_ns, held_bytes, places in rows:
            inputs = opened(link, tensors, places)
            request = kind(self, mark, found_options, inputs, request_id, received_ns, queued_ns, held_bytes)
            request.finder = finder
            requests[mark] = request
            try:
                if serving is None:
                    self._submit(request, wanted, tensors)
                else:
                    request.recipient = serving
                    serving.submit(request)
            except NaiadError as error:
                self._refuse_or_wait(request, wanted, tensors, error)
            except Exception:
                self._failed(request)

    def _submit_groups(
        self, queue: GroupQueue, kind: type[RelayedRequest], options: int, layout: int, rows: list[Row]
    ) -> list[Row]:
        """Submit requests that are alike as groups; returns those that are to be submitted one by one."""
        found, size = self._options[options], self._row_bytes[layout]
        most = queue.rows_of(size) if size else 0
        if found.rows != 1 or most < LEAST_ROWS:
            return rows
        left: list[Row] = []
        tensors = self._inputs[layout]
        for begin in range(0, len(rows), most):
            part = rows[begin : begin + most]
            count = len(part)
            if count < LEAST_ROWS:
                left += part
                continue
            key = options, count
            of_group = self._group_options.get(key)
            if of_group is None:
                of_group = self._group_options[key] = GroupOptions(found, count)
            group = RelayedGroup(self, of_group, kind, found, tensors, part, queue)
            if queue.submit(group):
                self._grouped.update(dict.fromkeys(group.marks, group))
            else:
                left += part
        return left

    def _serving(self, wanted: Announced | None) -> ServingModel | None:
        """The announced model, if it still serves; None where requests have to be checked again, or refused.

        Looked up once for all requests of a message, between which no model comes or goes.
        """
        if wanted is None:
            return None
        try:
            model = self._engine.find(wanted.name, wanted.version)
        except NaiadError:
            return None
        return model if model is wanted.model else None

    def _submit(self, request: RelayedRequest, wanted: Announced | None, tensors: tuple[TensorLayout, ...]) -> None:
        if wanted is None:
            raise UnavailableError("the model was unloaded while the request was on its way; try again")
        self._check_again(request, wanted, tensors)

    def _check_again(self, request: RelayedRequest, wanted: Announced, tensors: tuple[TensorLayout, ...]) -> None:
        """Submit a request whose model has been replaced while it was on its way; errors as ``ServingModel.submit``."""
        model = self._engine.find(wanted.name, wanted.version)
        given = [CalledInput(t.name, t.dtype, t.shape) for t in tensors]
        before = request.options
        checked = self._engine.check(model.spec, given, before.outputs, request.id)
        request.options = RequestOptions(
            checked.outputs, checked.rows, checked.shape_key, before.parameters, before.priority, before.timeout_us,
            before.flags, before.correlation_id,
        )  # fmt: skip
        request.recipient = model
        request.version = model.version
        model.submit(request)

    def _refuse_or_wait(
        self, request: RelayedRequest, wanted: Announced | None, tensors: tuple[TensorLayout, ...], error: NaiadError
    ) -> None:
        """Respond with ``error``; or where the model can be loaded for the request, submit it once it is."""

        def done(problem: NaiadError | None) -> None:
            self._waiting.pop(request.mark, None)
            try:
                if problem is not None or wanted is None:
                    raise problem or error
                request.queued_ns = monotonic_ns()
                self._check_again(request, wanted, tensors)
            except NaiadError as wrong:
                request.refuse(wrong)
            except Exception:
                self._failed(request)

        try:
            waiting = self._engine.wait_for_model(error, request.held_bytes, done)
        except NaiadError as refused:
            error, waiting = refused, None
        if waiting is None:
            request.refuse(error)
        else:
            self._waiting[request.mark] = waiting

    def _failed(self, request: RelayedRequest) -> None:
        logger.exception("a request of a front-end process could not be submitted")
        request.respond({}, InternalError(INTERNAL_FAILURE))

    def _cancel(self, mark: int) -> None:
        group = self._grouped.get(mark)
        if group is not None:
            if group.is_taken:
                # It gets its response, as every request that runs.
                return
            group.queue.cancel(group, group.single(mark))
            return
        request = self._open.get(mark)
        if request is None:
            return
        waiting = self._waiting.pop(mark, None)
        if waiting is not None:
            waiting.leave()
            self.fail(request, CancelledError("the request was cancelled by its caller"))
        elif request.recipient is not None:
            request.recipient.cancel(request)

    # Responses

    def respond(self, request: RelayedRequest, outputs: Mapping[str, Array]) -> None:
        """Send the outputs of a request."""
        layout, places = self._place(outputs, request.finder)
        mark = request.mark
        self._close(mark)
        if isinstance(outputs, Outputs) or request.version:
            parameters = dict(outputs.parameters) if isinstance(outputs, Outputs) else {}
            self._link.post((RESPONSE_OF, mark, layout, request.version, parameters, places))
        else:
            self._link.post_row((RESPONSE, layout), (mark, places))

    def respond_group(self, marks: Sequence[int], outputs: Mapping[str, Array]) -> None:
        """Send each of these requests its row of the outputs."""
        grouped = self._grouped
        for mark in marks:
            del grouped[mark]
        self._link.post((RESPONSES, *self._place(outputs), marks))

    def _place(self, outputs: Mapping[str, Array], finder: MemoryFinder | None = None) -> tuple[int, list[Place]]:
        sender = self._outputs
        if sender.is_full:
            sender.clear()
            self._link.post((FORGET,))
        return sender.send(outputs, finder)

    def _close(self, mark: int) -> None:
        if self._open.pop(mark, None) is None:
            # A batch has failed, and its requests ran one by one.
            self._grouped.pop(mark, None)

    def fail(self, request: RelayedRequest, error: NaiadError, is_refusal: bool = False) -> None:
        """Send the error of a request; ``is_refusal``: that of its submission."""
        self._close(request.mark)
        codes = error.http_status, error.grpc_code
        self._link.post((FAILURE, request.mark, *codes, caller_text(error), _kind_of(error), is_refusal))


def _kind_of(error: NaiadError) -> str:
    """The class by whose name front ends tell errors apart beside their codes."""
    for kind in (QueueFullError, CancelledError):
        if isinstance(error, kind):
            return kind.__name__
    return ""
