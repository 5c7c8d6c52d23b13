"""``/v1/models``: the models that serve, and their loading and unloading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.frontends.http.server.exchange import Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_json
from naiad.frontends.inference.offload import run_off_loop
from naiad.frontends.openai.adapters import ModelFiles, adapters_of
from naiad.frontends.openai.errors import send_error, send_refusal
from naiad.frontends.openai.settings import OpenAiSettings
from naiad.repository.local.layout import check_model_name
from naiad.repository.local.overrides import Overrides
from naiad.scheduling.admission import RequestBudget
from naiad.wire.openai.documents import model_document

_NOT_EXPLICIT: Final = "Model load/unload requires --model-control-mode=explicit"


class OpenAiModels:
    """The handlers of these routes.

    Args:
        files: finds the models' adapters.
        budget: counts what threads do.
    """

    def __init__(self, engine: Engine, files: ModelFiles, settings: OpenAiSettings, budget: RequestBudget) -> None:
        self._engine = engine
        self._files = files
        self._settings = settings
        self._budget = budget
        # By model: the callers that asked for a load while one was under way.
        self._loading: dict[str, list[Exchange]] = {}

    def list_all(self, exchange: Exchange, body: Body) -> None:
        """Answer with the models that serve."""

        def listed(documents: Sequence[Mapping[str, object]]) -> None:
            send_json(exchange, {"object": "list", "data": documents})

        self._with_all(exchange, listed)

    def show(self, name: str) -> Handler:
        """The handler that describes one model."""

        def handle(exchange: Exchange, body: Body) -> None:
            def listed(documents: Sequence[Mapping[str, object]]) -> None:
                found = next((one for one in documents if one["id"] == name), None)
                if found is None:
                    send_refusal(exchange, 404, f"Unknown model: {name}")
                else:
                    send_json(exchange, found)

            self._with_all(exchange, listed)

        return handle

    def _with_all(self, exchange: Exchange, then: Callable[[list[dict[str, object]]], None]) -> None:
        """Call ``then`` with the documents of all models, and of their adapters where they may be named."""
        times = self._engine.loaded_times()
        if self._settings.separator:
            work = partial(self._with_adapters, times)
            run_off_loop(work, then, partial(send_error, exchange), self._budget, 0)
        else:
            then([model_document(name, created) for name, created in times.items()])

    def _with_adapters(self, times: Mapping[str, int]) -> list[dict[str, object]]:
        found = []
        for name, created in times.items():
            found.append(model_document(name, created))
            for adapter in adapters_of(self._files, name) or ():
                found.append(model_document(f"{name}{self._settings.separator}{adapter}", created))
        return found

    def load(self, name: str) -> Handler:
        """The handler that loads a model, and answers once it serves."""

        def handle(exchange: Exchange, body: Body) -> None:
            if not self._settings.loads:
                send_refusal(exchange, 400, _NOT_EXPLICIT)
            elif name in self._engine.loaded_times():
                _refuse_loaded(exchange, name)
            elif name in self._loading:
                self._loading[name].append(exchange)
            else:
                self._begin_load(exchange, name)

        return handle

    def _begin_load(self, exchange: Exchange, name: str) -> None:
        try:
            check_model_name(name)
        except NaiadError as error:
            send_refusal(exchange, error.http_status, f"Failed to load model '{name}': {error}")
            return
        self._loading[name] = []
        self._engine.load(name, Overrides(None, {}), partial(self._end_load, exchange, name))

    def _end_load(self, exchange: Exchange, name: str, error: NaiadError | None) -> None:
        others = self._loading.pop(name)
        if error is None:
            send_json(exchange, model_document(name, self._engine.loaded_times().get(name, 0)))
            for other in others:
                _refuse_loaded(other, name)
            return
        for one in (exchange, *others):
            _refuse(one, f"Failed to load model '{name}'", error)

    def unload(self, name: str) -> Handler:
        """The handler that unloads a model, and answers once it takes no further requests."""

        def handle(exchange: Exchange, body: Body) -> None:
            if not self._settings.loads:
                send_refusal(exchange, 400, _NOT_EXPLICIT)
            elif name not in self._engine.loaded_times():
                send_refusal(exchange, 400, f"Unknown model: {name}")
            else:
                self._engine.unload(name, False, partial(self._end_unload, exchange, name))

        return handle

    def _end_unload(self, exchange: Exchange, name: str, error: NaiadError | None) -> None:
        if error is None:
            send_json(exchange, {"status": "success", "model": name})
        else:
            _refuse(exchange, f"Failed to unload model '{name}'", error)


def _refuse_loaded(exchange: Exchange, name: str) -> None:
    send_refusal(exchange, 400, f"Model '{name}' is already loaded")


def _refuse(exchange: Exchange, failure: str, error: NaiadError) -> None:
    """Answer with the error of an operation: 500 as in the reference, or a status that says to try again."""
    status = error.http_status if error.retryable else 500
    send_refusal(exchange, status, f"{failure}: {error}")
