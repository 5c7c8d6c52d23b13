"""The port of the API of OpenAI: chats, completions, embeddings and models, with metrics and readiness.

Source: OpenAI's API, and the reference's front end for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final
from urllib.parse import unquote

from naiad.engine.engine import Engine
from naiad.frontends.http.server.exchange import Application, Body, Exchange, Handler
from naiad.frontends.http.server.replies import send_empty
from naiad.frontends.openai.errors import send_refusal
from naiad.frontends.openai.inference import OpenAiInference
from naiad.frontends.openai.models import OpenAiModels
from naiad.wire.http1.head import RequestHead

_MODEL: Final = r"/v1/models/(?P<name>[^/]++)"
_FEATURES: Final = tuple(
    (re.compile(pattern), feature)
    for pattern, feature in (
        ("/health/ready", "health"),
        ("/metrics", "statistics"),
        ("/v1/(?:chat/completions|completions|embeddings)", "inference"),
        (rf"/v1/models|{_MODEL}(?:/(?:load|unload))?", "model-repository"),
    )
)


def feature_of_openai(target: str) -> str:
    """The feature that a path of this port belongs to, for its gate; "" for none."""
    return next((feature for pattern, feature in _FEATURES if pattern.fullmatch(target)), "")


class OpenAiApplication:
    """Finds the handler of a request.

    Args:
        metrics: writes the metrics page; None without metrics.
    """

    def __init__(
        self, engine: Engine, inference: OpenAiInference, models: OpenAiModels, metrics: Application | None
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._fixed: Mapping[str, tuple[str, Handler]] = {
            "/v1/chat/completions": ("POST", inference.chat),
            "/v1/completions": ("POST", inference.completions),
            "/v1/embeddings": ("POST", inference.embeddings),
            "/v1/models": ("GET", models.list_all),
            "/health/ready": ("GET", self._ready),
        }
        self._of_models: tuple[tuple[re.Pattern[str], str, Callable[[str], Handler]], ...] = (
            (re.compile(_MODEL), "GET", models.show),
            (re.compile(rf"{_MODEL}/load"), "POST", models.load),
            (re.compile(rf"{_MODEL}/unload"), "POST", models.unload),
        )

    def __call__(self, head: RequestHead) -> Handler:
        if head.target == "/metrics" and self._metrics is not None:
            return self._metrics(head)
        fixed = self._fixed.get(head.target)
        if fixed is not None:
            method, handler = fixed
            if head.method != method:
                return _refusing(head, 405, "Method Not Allowed", method)
            # Models can be loaded without room for inference.
            head.needs_room = method == "POST"
            return handler
        for pattern, method, make in self._of_models:
            if (found := pattern.fullmatch(head.target)) is not None:
                if head.method != method:
                    return _refusing(head, 405, "Method Not Allowed", method)
                return make(unquote(found["name"]))
        return _refusing(head, 404, "Not Found")

    def _ready(self, exchange: Exchange, body: Body) -> None:
        if self._engine.is_ready():
            send_empty(exchange)
        else:
            send_refusal(exchange, 400, "Attached inference engine is not ready for inference requests.")


def _refusing(head: RequestHead, status: int, text: str, allowed: str = "") -> Handler:
    # A large body is then not waited for.
    head.refused = True
    return partial(_refuse, status, text, (("Allow", allowed),) if allowed else ())


def _refuse(status: int, text: str, extra: tuple[tuple[str, str], ...], exchange: Exchange, body: Body) -> None:
    send_refusal(exchange, status, text, extra)
