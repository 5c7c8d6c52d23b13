"""``POST /v1/completions``, ``/v1/chat/completions`` and ``/v1/embeddings``."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import orjson

from naiad.engine.engine import Engine
from naiad.errors import INTERNAL_FAILURE, BackendError, InternalError, InvalidArgumentError, NaiadError, NotFoundError
from naiad.execution.model.interface import ServingModel
from naiad.frontends.http.server.exchange import Body, Exchange
from naiad.frontends.inference.model_wait import wait_for_model
from naiad.frontends.inference.offload import OFF_LOOP_BYTES, run_off_loop
from naiad.frontends.inference.refusals import log_refusal
from naiad.frontends.inference.request_planner import Planner
from naiad.frontends.openai.adapters import ModelFiles, check_adapter, split_name
from naiad.frontends.openai.errors import send_error
from naiad.frontends.openai.model_inputs import VLLM, embedding_inputs, generation_inputs, kind_of
from naiad.frontends.openai.model_request import ModelRequest
from naiad.frontends.openai.replies import ModelFlow, Reply, StreamedReply, WholeReply
from naiad.frontends.openai.response_documents import ChatDocuments, CompletionDocuments, ResponseDocuments
from naiad.frontends.openai.settings import OpenAiSettings
from naiad.lifecycle.memory.load_on_demand import ModelNotLoadedError
from naiad.scheduling.admission import RequestBudget
from naiad.wire.openai.chat_request import ChatRequest, read_chat
from naiad.wire.openai.completion_request import CompletionRequest, read_completion
from naiad.wire.openai.conversation import conversation
from naiad.wire.openai.documents import DocumentHead
from naiad.wire.openai.embedding_request import EmbeddingRequest, read_embedding
from naiad.wire.openai.generated import Generated
from naiad.wire.v2.binary import BinaryPlan
from naiad.wire.v2.generate import inputs_header
from naiad.wire.v2.json import decode_data

log = logging.getLogger(__name__)

_Request = TypeVar("_Request", ChatRequest, CompletionRequest, EmbeddingRequest)


class OpenAiInference:
    """Handles the requests that models answer.

    Args:
        files: finds the models' adapters.
        budget: counts what threads read.
    """

    def __init__(self, engine: Engine, files: ModelFiles, settings: OpenAiSettings, budget: RequestBudget) -> None:
        self._engine = engine
        self._files = files
        self._settings = settings
        self._budget = budget

    # Handlers

    def completions(self, exchange: Exchange, body: Body) -> None:
        """Continue a text."""
        self._read(exchange, body, read_completion, self._complete)

    def chat(self, exchange: Exchange, body: Body) -> None:
        """Go on with a conversation."""
        self._read(exchange, body, read_chat, partial(self._begin_chat, len(body)))

    def embeddings(self, exchange: Exchange, body: Body) -> None:
        """Embed a text."""
        self._read(exchange, body, read_embedding, self._embed)

    # The steps of a request

    def _read(
        self,
        exchange: Exchange,
        body: Body,
        read: Callable[[Body], _Request],
        then: Callable[[Exchange, _Request], None],
    ) -> None:
        """Read a body, a large one in a thread, then go on with the request."""
        size = len(body)

        def done(request: _Request) -> None:
            self._with_errors(exchange, request.model, size, lambda: then(exchange, request))

        if size > OFF_LOOP_BYTES:
            self._off_loop(exchange, partial(read, body), done, size)
            return
        try:
            request = read(body)
        except NaiadError as error:
            self._refuse(exchange, "", error)
            return
        done(request)

    def _off_loop(self, exchange: Exchange, work: Callable[[], Any], done: Callable[[Any], None], size: int) -> None:
        """Do what may take long in a thread, then call ``done`` unless the caller has left."""

        def on_loop(found: Any) -> None:
            if not exchange.closed():
                done(found)

        run_off_loop(work, on_loop, partial(self._refuse, exchange, ""), self._budget, size)

    def _with_errors(self, exchange: Exchange, model: str, size: int, step: Callable[[], None]) -> None:
        """Do a step of a request, which holds ``size`` bytes.

        Its errors go to the caller, or the request waits for its model and tries again.
        """
        try:
            step()
        except NaiadError as error:
            retry = partial(self._with_errors, exchange, model, size, step)
            fail = partial(self._refuse, exchange, model)
            if not wait_for_model(self._engine.demand, error, size, exchange, retry, fail):
                fail(error)
        except Exception:
            # Nothing else catches it behind the work of a thread, and the caller would wait for ever.
            log.exception("handler failed: %s %s", exchange.head.method, exchange.head.target)
            send_error(exchange, InternalError(INTERNAL_FAILURE))

    def _refuse(self, exchange: Exchange, model: str, error: NaiadError) -> None:
        log_refusal(error, "", model)
        send_error(exchange, error)

    def _complete(self, exchange: Exchange, request: CompletionRequest) -> None:
        model, adapter = self._find(request.model)
        request.check(kind_of(model.spec, self._settings.kind) == VLLM)
        if not adapter:
            self._end_completion(exchange, request)
            return

        def checked(_: None) -> None:
            size = len(request.prompt)
            self._with_errors(exchange, request.model, size, lambda: self._end_completion(exchange, request))

        self._off_loop(exchange, partial(self._check_adapter, request.model), checked, 0)

    def _check_adapter(self, name: str) -> None:
        model, adapter = split_name(name, self._settings.separator)
        if adapter:
            check_adapter(self._files, model, adapter, name)

    def _end_completion(self, exchange: Exchange, request: CompletionRequest) -> None:
        self._generate(exchange, request, request.prompt, CompletionDocuments)

    def _begin_chat(self, size: int, exchange: Exchange, request: ChatRequest) -> None:
        settings = self._settings
        model, _ = self._find(request.model)
        template = settings.template
        if template is None:
            raise InternalError("Unknown tokenizer")
        request.check(kind_of(model.spec, settings.kind) == VLLM, settings.calls is not None)

        def rendered(prompt: str) -> None:
            step = partial(self._end_chat, exchange, request, prompt)
            self._with_errors(exchange, request.model, len(prompt), step)

        def render() -> str:
            self._check_adapter(request.model)
            return template.render(conversation(request.messages), request.tools)

        # In a thread: a template is a program, and a long conversation takes long.
        self._off_loop(exchange, render, rendered, size)

    def _end_chat(self, exchange: Exchange, request: ChatRequest, prompt: str) -> None:
        settings = self._settings
        calls = settings.calls if request.may_call else None
        self._generate(
            exchange, request, prompt, lambda head: ChatDocuments(head, request, calls, settings.max_call_bytes)
        )

    def _generate(
        self,
        exchange: Exchange,
        request: ChatRequest | CompletionRequest,
        prompt: str,
        make_documents: Callable[[DocumentHead], ResponseDocuments],
    ) -> None:
        settings, sampling = self._settings, request.sampling
        # Found again: the model may have been unloaded while a thread worked on the request.
        model, adapter = self._find(request.model)
        kind = kind_of(model.spec, settings.kind)
        values = generation_inputs(request, prompt, model.spec, kind, adapter, settings.max_tokens)
        head = DocumentHead(_response_id(), int(time.time()), request.model)
        documents = make_documents(head)

        def make_reply(flow: ModelFlow) -> Reply:
            if sampling.stream:
                return StreamedReply(exchange, documents, flow, sampling.include_usage)
            return WholeReply(exchange, documents.whole)

        self._submit(exchange, model, values, head.id, make_reply)

    def _embed(self, exchange: Exchange, request: EmbeddingRequest) -> None:
        model, _ = self._find(request.model)
        values = embedding_inputs(request, model.spec, kind_of(model.spec, self._settings.kind))
        make = partial(_embedding_document, request)
        self._submit(exchange, model, values, _response_id(), lambda flow: WholeReply(exchange, make))

    def _find(self, name: str) -> tuple[ServingModel, str]:
        """The model that a request names, and the adapter; "" for none.

        Raises:
            InvalidArgumentError: there is no such model.
            NaiadError: it cannot serve now.
        """
        model, adapter = split_name(name, self._settings.separator)
        try:
            return self._engine.find(model, None), adapter
        except ModelNotLoadedError:
            raise
        except NotFoundError:
            raise InvalidArgumentError(f"Unknown model: {name}") from None

    def _submit(
        self,
        exchange: Exchange,
        model: ServingModel,
        values: dict[str, Any],
        request_id: str,
        make_reply: Callable[[ModelFlow], Reply],
    ) -> None:
        header = inputs_header(values, model.spec.inputs, request_id)
        # Made for each request: prompts are not so many that it would matter.
        plan = Planner(model, BinaryPlan).plan(header, {})
        inputs = {given.name: decode_data(given, model.name, request_id) for given in header.inputs}
        ModelRequest(exchange, model, plan, inputs, request_id, make_reply).submit()


def _embedding_document(request: EmbeddingRequest, generated: Generated) -> dict[str, Any]:
    try:
        embedding = orjson.loads(generated.text)
        shown = request.encode([float(number) for number in embedding])
    except (ValueError, TypeError):
        raise BackendError(f"model '{request.model}' returned no array of numbers as JSON") from None
    document: dict[str, Any] = {
        "object": "list",
        "data": [{"object": "embedding", "embedding": shown, "index": 0}],
        "model": request.model,
        "usage": None,
    }
    if generated.usage is not None:
        document["usage"] = {"prompt_tokens": generated.usage.prompt, "total_tokens": generated.usage.prompt}
    return document


def _response_id() -> str:
    return f"cmpl-{uuid.uuid4()}"
