"""SageMaker's endpoints of several models: it loads, lists, invokes and unloads them by ids of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from naiad.engine.engine import Engine
from naiad.errors import AlreadyExistsError, NaiadError
from naiad.frontends.http.cloud.load_request import LoadRequest, read_load_request
from naiad.frontends.http.cloud.memory_shortage import is_memory_shortage
from naiad.frontends.http.cloud.sagemaker_exchange import SageMakerExchange
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import JSON, send_empty, send_error, send_json, send_message
from naiad.frontends.http.v2.infer import HttpInferHandler
from naiad.frontends.http.v2.route_table import RouteServices
from naiad.lifecycle.added_models import AddedModel, LoadDone
from naiad.lifecycle.state.model_requests import Done
from naiad.worker.ipc.arena import Arena

logger = logging.getLogger("naiad")


class ModelLoads(Protocol):
    """``lifecycle.added_models.AddedModels``, as this module needs it."""

    def begin_load(self, folder: Path, name: str, done: LoadDone) -> None: ...

    def begin_unload(self, model: AddedModel, done: Done) -> None: ...


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model that SageMaker has loaded, and what handles its invocations."""

    model: AddedModel
    infer: HttpInferHandler

    def shown(self, model_id: str) -> dict[str, str]:
        return {"modelName": model_id, "modelUrl": str(self.model.repository.place)}


class SageMakerModels:
    """The models that SageMaker has loaded, by its ids, and the handlers of their routes.

    Args:
        services: what handlers of inference are made with.
        loads: loads and unloads them.
        root: the folder below which models may be loaded.
    """

    def __init__(self, services: RouteServices, loads: ModelLoads, root: Path) -> None:
        self._services = services
        self._engine: Engine = services.engine
        self._loads = loads
        self._root = root
        self._loaded: dict[str, _Loaded] = {}

    def list_all(self, exchange: Exchange, body: Body) -> None:
        """Answer with the models that can be invoked."""
        rows = [
            one.shown(model_id)
            for model_id, one in self._loaded.items()
            if self._engine.is_model_ready(one.model.key, None)
        ]
        send_json(exchange, {"models": rows})

    def show(self, model_id: str) -> Handler:
        """The handler that describes one model."""

        def handle(exchange: Exchange, body: Body) -> None:
            found = self._loaded.get(model_id)
            if found is None:
                send_empty(exchange, 404)
            else:
                send_json(exchange, found.shown(model_id))

        return handle

    def load(self, exchange: Exchange, body: Body) -> None:
        """Load the model that the body names, and answer once it serves."""
        try:
            wanted = read_load_request(body, exchange.head.headers, self._root)
        except NaiadError as error:
            send_error(exchange, error)
            return
        logger.info("Loading SageMaker TargetModel: %s", wanted.name)
        if wanted.id in self._loaded:
            taken = AlreadyExistsError(f"a model with the model_name '{wanted.id}' is loaded: unload it first")
            _refuse_load(exchange, taken)
            return
        self._loads.begin_load(
            wanted.folder, wanted.name, lambda model, error: self._end_load(exchange, wanted, model, error)
        )

    def _end_load(
        self, exchange: Exchange, wanted: LoadRequest, model: AddedModel | None, error: NaiadError | None
    ) -> None:
        if model is None:
            _refuse_load(exchange, error)
        elif wanted.id in self._loaded:
            # Two loads at once under one id, of different folders: the first one counts.
            self._loads.begin_unload(model, lambda ended: None)
            _refuse_load(
                exchange, AlreadyExistsError(f"a model with the model_name '{wanted.id}' was loaded meanwhile")
            )
        else:
            self._loaded[wanted.id] = _Loaded(model, HttpInferHandler(self._services, model.key, None))
            send_empty(exchange)

    def unload(self, model_id: str) -> Handler:
        """The handler that unloads one model, and answers once it is closed."""

        def handle(exchange: Exchange, body: Body) -> None:
            # Taken out first: no further request begins, and a second unload finds nothing.
            found = self._loaded.pop(model_id, None)
            if found is None:
                send_empty(exchange, 404)
                return
            logger.info("Unloading SageMaker TargetModel: %s", found.model.repository.name)
            self._loads.begin_unload(found.model, lambda error: self._end_unload(exchange, model_id, found, error))

        return handle

    def _end_unload(self, exchange: Exchange, model_id: str, found: _Loaded, error: NaiadError | None) -> None:
        if error is None:
            send_empty(exchange)
            return
        # It still serves, so it can be unloaded later.
        self._loaded.setdefault(model_id, found)
        _refuse_load(exchange, error)

    def invoke(self, model_id: str) -> Handler:
        """The handler of inference by one model."""

        def handle(exchange: Exchange, body: Body) -> None:
            # Looked up for each request: models come and go while heads are cached.
            found = self._loaded.get(model_id)
            if found is None:
                send_empty(exchange, 404)
                return
            found.infer(SageMakerExchange(exchange, is_invocation=True), body)

        return handle

    def arena(self, model_id: str) -> Arena | None:
        """Where the body of the next invocation of a model is to be received; None for any memory."""
        found = self._loaded.get(model_id)
        return None if found is None else found.infer.arena()


def _refuse_load(exchange: Exchange, error: NaiadError | None) -> None:
    """Answer a load or an unload that failed: 409 for what is there already, 507 where memory lacks, else 400."""
    text = str(error)
    if error is not None and error.retryable and not is_memory_shortage(text):
        send_error(exchange, error, JSON)
        return
    status = 409 if isinstance(error, AlreadyExistsError) else 507 if is_memory_shortage(text) else 400
    send_message(exchange, status, text)
