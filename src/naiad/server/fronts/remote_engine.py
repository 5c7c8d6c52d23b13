"""The engine as the front ends of this process see it: what inference needs, the models included."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from naiad.errors import CancelledError, NaiadError, NotFoundError, QueueFullError, UnavailableError
from naiad.request import Array, InferRequest, Outputs, RequestOptions
from naiad.server.fronts.front_model import FrontModel
from naiad.server.fronts.link import Link, Place
from naiad.server.fronts.messages import (
    CANCEL,
    FAILURE,
    FORGET,
    INFER,
    INPUTS,
    MODELS,
    OPTIONS,
    OUTPUTS,
    RESPONSE,
    RESPONSE_OF,
    RESPONSES,
)
from naiad.server.fronts.tensors import Layout, LayoutSender, TensorLayout, opened, received
from naiad.shared_memory.registry import RegionRegistry
from naiad.worker.ipc.arena import Arena

if TYPE_CHECKING:
    from naiad.engine.facade import ModelFollower
    from naiad.execution.model.interface import ServingModel
    from naiad.lifecycle.memory.load_on_demand import LoadOnDemand
    from naiad.scheduling.admission import RequestBudget
    from naiad.server.fronts.link import Handlers
    from naiad.server.fronts.replicas.replicas import Replicas

logger = logging.getLogger("naiad")

MAX_OPTIONS: Final = 2048
"""Options that the engine remembers for this process; then all are forgotten."""
ENGINE_LOST: Final = "the process that runs the models has ended and is being started again; try again"


class ElsewhereError(Exception):
    """The request is none that this process can read: it is to go to the engine as it came."""


class RemoteError(NaiadError):
    """An error of the engine's process. Status and code are those of its class there."""

    def __init__(self, text: str, http_status: int, grpc_code: int) -> None:
        super().__init__(text)
        # Instance attributes hide those of the class: front ends read them from the error.
        self.__dict__.update(http_status=http_status, grpc_code=grpc_code)


class RemoteRefusalError(RemoteError, QueueFullError):
    """A refusal of the engine's process: front ends send the same one many times."""


class RemoteCancelError(RemoteError, CancelledError):
    """The engine's process knows that the request was cancelled."""


_ERRORS: Final[dict[str, type[RemoteError]]] = {
    QueueFullError.__name__: RemoteRefusalError,
    CancelledError.__name__: RemoteCancelError,
}


class RegionsElsewhere(RegionRegistry):
    """The registry of a process that has none: regions belong to the engine."""

    def __init__(self, engine: RemoteEngine) -> None:
        super().__init__()
        self._engine = engine

    def check_allowed(self) -> None:
        raise self._engine.elsewhere("regions of clients")


class RemoteEngine:
    """The facade of ``engine/facade.py`` for a front-end process.

    ``find`` knows the models that the engine has announced. Whatever it does not know, or cannot serve, goes to the
    engine as it came: ``ElsewhereError`` says so, while ``can_hand_over`` is set.

    Attributes:
        budget: the bounds of this process; those of the engine hold for all processes together.
        demand: None, since the engine loads models for requests.
        sent: how many requests were sent to the engine.
        replicas: the models that this process runs itself.
        can_hand_over: a handler is being called that can still hand the request over.
    """

    demand: LoadOnDemand | None = None

    def __init__(self, budget: RequestBudget, replicas: Replicas) -> None:
        self.budget = budget
        self.regions: RegionRegistry = RegionsElsewhere(self)
        self.can_hand_over = False
        self._followers: WeakSet[ModelFollower] = WeakSet()
        self.replicas = replicas
        self._models: dict[tuple[str, str], FrontModel] = {}
        self._replica_numbers: dict[tuple[str, str], int] = {}
        self._by_number: dict[int, tuple[str, str]] = {}
        self._link: Link | None = None
        self.sent = 0
        self._open: dict[int, tuple[FrontModel, InferRequest]] = {}
        self._options: dict[RequestOptions, int] = {}
        self._next_options = 1
        self._outputs: dict[int, tuple[TensorLayout, ...]] = {}

    # The facade

    def follow(self, follower: ModelFollower) -> None:
        """Notify ``follower`` of each model that is gone from now on. Keeps a weak reference only."""
        self._followers.add(follower)

    def find(self, name: str, version: str | None) -> ServingModel:
        """The model for a name and a version.

        Raises:
            ElsewhereError: it is not known here; the engine may serve it.
            NotFoundError: the same, and the request cannot be handed over any more.
        """
        # The path of most requests where models have replicas.
        replicas = self.replicas
        replica = replicas.serving.get((name, version)) if version else replicas.latest.get(name)
        if replica is not None and replicas.now[0] == replicas.known:
            return replica
        model = self._models.get((name, version or ""))
        if model is None:
            error = self.elsewhere(f"model '{name}'")
            raise error
        return model

    def elsewhere(self, what: str) -> Exception:
        """The error for a request that needs ``what``, which the engine has."""
        if self.can_hand_over:
            return ElsewhereError()
        if self._link is None:
            return UnavailableError(ENGINE_LOST)
        return NotFoundError(f"Request for unknown model: {what} is not found; it was unloaded meanwhile")

    # Requests

    def submit(self, model: FrontModel, request: InferRequest) -> None:
        """Send a request to the engine.

        Raises:
            UnavailableError: the engine's process has ended.
            QueueFullError: the requests of this process alone are more than the server may have.
        """
        link = self._link
        if link is None:
            raise UnavailableError(ENGINE_LOST)
        budget, size = self.budget, request.held_bytes
        if (error := budget.refusal(size)) is not None:
            raise error
        options = request.options
        number = self._options.get(options)
        if number is None:
            number = self._send_options(link, options)
        layout, places = self._inputs.send(request.inputs, model.arena, model.number)
        mark = id(request)
        head = INFER, model.number, number, layout, request.carrier
        row = mark, request.id, request.received_ns, request.queued_ns, size, places
        if options.correlation_id:
            # Requests of a sequence keep their order, also among those that are alike.
            link.post((*head, [row]))
        else:
            link.post_row(head, row)
        budget.take(size)
        self.sent += 1
        self._open[mark] = model, request

    def cancel(self, request: InferRequest) -> None:
        """Cancel a request; the engine responds to it all the same."""
        if self._link is not None:
            self._link.post((CANCEL, id(request)))

    def _send_options(self, link: Link, options: RequestOptions) -> int:
        if len(self._options) >= MAX_OPTIONS or self._inputs.is_full:
            self._options.clear()
            self._inputs.clear()
            link.post((FORGET,))
        number = self._options[options] = self._next_options
        self._next_options += 1
        link.post(
            (
                OPTIONS, number,
                (
                    options.outputs, options.rows, options.shape_key, dict(options.parameters), options.priority,
                    options.timeout_us, options.flags, options.correlation_id,
                ),
            )
        )  # fmt: skip
        return number

    # Messages of the engine

    def handlers(self) -> Handlers:
        """What takes the engine's messages about models and requests."""
        return {
            MODELS: self._take_models,
            OUTPUTS: self._take_outputs,
            **self.replicas.handlers(),
            RESPONSE: self._take_responses,
            RESPONSES: self._take_responses_of_group,
            RESPONSE_OF: self._take_response_of,
            FAILURE: self._take_failure,
            FORGET: self._outputs.clear,
        }

    def connect(self, link: Link) -> None:
        """Send requests over ``link`` from now on."""
        self._link = link
        self._inputs = LayoutSender(link, INPUTS)
        self.replicas.connect(link)

    def disconnect(self) -> None:
        """The engine's process is gone: every open request fails, and further ones until ``connect``."""
        self._link = None
        self.replicas.disconnect()
        self._replica_numbers.clear()
        gone, self._models = self._models, {}
        self._by_number.clear()
        self._options.clear()
        self._outputs.clear()
        failed, self._open = self._open, {}
        for _, request in failed.values():
            self.budget.release(request.held_bytes)
            self._respond(request, {}, UnavailableError(ENGINE_LOST))
        for model in gone.values():
            self.forget(model)
            model.close()

    def _take_models(self, gone: list[int], fresh: bytes, generation: int) -> None:
        dropped: list[FrontModel] = []
        for number in gone:
            key = self._by_number.pop(number, None)
            if key is not None and self._models[key].number == number:
                dropped.append(self._models.pop(key))
                self._replica_numbers.pop(key, None)
        for number, name, version, spec, serving, replica in pickle.loads(fresh) if fresh else ():
            self._by_number[number] = name, version
            before = self._models.get((name, version))
            if before is not None:
                dropped.append(before)
            self._models[name, version] = FrontModel(self, number, spec, serving, Arena())
            self._replica_numbers[name, version] = replica
        self.replicas.name(dict(self._replica_numbers), generation)
        for model in dropped:
            self.forget(model)
            model.close()
        if dropped and self._link is not None:
            self._link.drop_arenas()

    def forget(self, model: ServingModel) -> None:
        """Have every follower forget a model that is gone."""
        for follower in list(self._followers):
            follower.forget(model)

    def _take_outputs(self, number: int, layout: Layout) -> None:
        self._outputs[number] = received(layout)

    def _take_responses(self, layout: int, rows: list[tuple[int, list[Place]]]) -> None:
        link, requests, release = self._link, self._open, self.budget.release
        tensors = self._outputs[layout]
        if link is None:
            return
        for mark, places in rows:
            found = requests.pop(mark, None)
            if found is not None:
                request = found[1]
                release(request.held_bytes)
                self._respond(request, opened(link, tensors, places), None)

    def _take_responses_of_group(self, layout: int, places: list[Place], marks: list[int]) -> None:
        link, requests, release = self._link, self._open, self.budget.release
        if link is None:
            return
        arrays = opened(link, self._outputs[layout], places)
        for row, mark in enumerate(marks):
            found = requests.pop(mark, None)
            if found is not None:
                request = found[1]
                release(request.held_bytes)
                self._respond(request, {name: array[row : row + 1] for name, array in arrays.items()}, None)

    def _take_response_of(
        self, mark: int, layout: int, version: int, parameters: dict[str, Any], places: list[Place]
    ) -> None:
        found = self._open.pop(mark, None)
        link = self._link
        if found is None or link is None:
            return
        model, request = found
        self.budget.release(request.held_bytes)
        if version:
            request.retarget(model.of_version(version))
        # Front ends check each array of ``Outputs``.
        self._respond(request, Outputs(opened(link, self._outputs[layout], places), parameters), None)

    def _take_failure(
        self, mark: int, http_status: int, grpc_code: int, text: str, kind: str, is_refusal: bool
    ) -> None:
        found = self._open.pop(mark, None)
        if found is not None:
            request = found[1]
            self.budget.release(request.held_bytes)
            error = _ERRORS.get(kind, RemoteError)(text, http_status, grpc_code)
            if is_refusal:
                self._refuse(request, error)
            else:
                self._respond(request, {}, error)

    def _refuse(self, request: InferRequest, error: NaiadError) -> None:
        try:
            request.refuse(error)
        except Exception:
            logger.exception("an error could not be sent")

    def _respond(self, request: InferRequest, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        try:
            request.respond(outputs, error)
        except Exception:
            logger.exception("a response could not be sent")
            # As ``InferRequest`` says: once more, with an error, when that call raised.
            request.respond({}, UnavailableError("internal error while the response was sent"))
