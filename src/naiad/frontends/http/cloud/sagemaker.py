"""The port of Amazon SageMaker: ``/ping``, ``/invocations``, and ``/models`` for endpoints of several models.

Source: the reference's ``sagemaker_server.cc``. Its statuses for requests that fit no route are kept, with their empty
bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from naiad.errors import InvalidArgumentError
from naiad.frontends.http.cloud.binary_type import SAGEMAKER
from naiad.frontends.http.cloud.inner_head import adopt, handler_by, inner_head
from naiad.frontends.http.cloud.refusals import empty, with_error, wrong_method
from naiad.frontends.http.cloud.sagemaker_exchange import SageMakerExchange
from naiad.frontends.http.cloud.sagemaker_models import SageMakerModels
from naiad.frontends.http.cloud.sagemaker_settings import SageMakerSettings
from naiad.frontends.http.server.exchange import Application, Exchange, Handler
from naiad.frontends.http.v2.body_parts import describe_body
from naiad.wire.http1.head import RequestHead

_MODELS: Final = r"/models/?"
_MODEL: Final = r"/models/(?P<id>[^/]++)"
_FEATURES: Final = tuple(
    (re.compile(pattern), feature)
    for pattern, feature in (
        ("/ping", "health"),
        (rf"/invocations|{_MODEL}/invoke", "inference"),
        (rf"{_MODELS}|{_MODEL}", "model-repository"),
    )
)


def feature_of_sagemaker(target: str) -> str:
    """The feature that a path of this port belongs to, for its gate; "" for none."""
    return next((feature for pattern, feature in _FEATURES if pattern.fullmatch(target)), "")


class SageMakerApplication:
    """Finds the handler of a request.

    Args:
        v2: the application of the v2 API, without a gate.
        models: the models that SageMaker loads.
    """

    def __init__(self, v2: Application, models: SageMakerModels, settings: SageMakerSettings) -> None:
        self._v2 = v2
        self._models = models
        self._settings = settings
        self._routes: tuple[tuple[re.Pattern[str], Callable[[RequestHead, str], Handler]], ...] = (
            (re.compile("/ping"), self._ping),
            (re.compile("/invocations"), self._invocations),
            (re.compile(_MODELS), self._all_models),
            (re.compile(_MODEL), self._one_model),
            (re.compile(rf"{_MODEL}/invoke"), self._invoke),
        )

    def __call__(self, head: RequestHead) -> Handler:
        for pattern, find in self._routes:
            if (found := pattern.fullmatch(head.target)) is not None:
                return find(head, found.groupdict().get("id") or "")
        return empty(head, 400)

    def _ping(self, head: RequestHead, model_id: str) -> Handler:
        return handler_by(self._v2, head, inner_head(head, head.method, f"/v2/health/{self._settings.ping_mode}"))

    def _invocations(self, head: RequestHead, model_id: str) -> Handler:
        kind, target = self._settings.inference_type, f"/v2/models/{self._settings.model}"
        if kind != "infer":
            return handler_by(self._v2, head, inner_head(head, head.method, f"{target}/{kind}"))
        try:
            size = SAGEMAKER.json_bytes(head.headers)
        except InvalidArgumentError as error:
            return with_error(head, error)
        return _for_sagemaker(handler_by(self._v2, head, inner_head(head, head.method, f"{target}/infer", size)))

    def _all_models(self, head: RequestHead, model_id: str) -> Handler:
        if head.method == "GET":
            return self._models.list_all
        if head.method == "POST":
            return self._models.load
        return empty(head, 404 if head.method == "DELETE" else 400)

    def _one_model(self, head: RequestHead, model_id: str) -> Handler:
        if head.method == "GET":
            return self._models.show(model_id)
        if head.method == "DELETE":
            return self._models.unload(model_id)
        # The body names the model to load, whatever the path is.
        return self._models.load if head.method == "POST" else empty(head, 400)

    def _invoke(self, head: RequestHead, model_id: str) -> Handler:
        if head.method != "POST":
            return wrong_method(head, "POST")
        try:
            inner = inner_head(head, "POST", head.target, SAGEMAKER.json_bytes(head.headers))
        except InvalidArgumentError as error:
            return with_error(head, error)
        describe_body(inner)
        inner.find_arena = partial(self._models.arena, model_id)
        adopt(head, inner)
        return self._models.invoke(model_id)


def _for_sagemaker(handler: Handler) -> Handler:
    def handle(exchange: Exchange, body: bytearray | memoryview) -> None:
        handler(SageMakerExchange(exchange, is_invocation=False), body)

    return handle
