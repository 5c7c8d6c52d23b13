"""The port of Google Vertex AI: the paths for health and predictions, and redirects from there to the v2 API.

Source: the reference's ``vertex_ai_server.cc``. Its statuses for requests that fit no route are kept, with their empty
bodies.
"""

from __future__ import annotations

from naiad.errors import InvalidArgumentError, UnavailableError
from naiad.frontends.http.cloud.binary_type import VERTEX_AI
from naiad.frontends.http.cloud.default_model import DefaultModel
from naiad.frontends.http.cloud.inner_head import handler_by, inner_head
from naiad.frontends.http.cloud.redirects import HEADER, METRICS, is_forbidden, is_inference, method_of
from naiad.frontends.http.cloud.refusals import empty, with_error, wrong_method
from naiad.frontends.http.cloud.vertex_ai_settings import VertexAiRoutes
from naiad.frontends.http.server.exchange import Application, Handler
from naiad.wire.http1.head import RequestHead


class VertexAiApplication:
    """Finds the handler of a request.

    Args:
        v2: the application of the v2 API, behind its gate.
        metrics: that of the metrics page, behind its gate; None without metrics.
        default: the model of predictions.
    """

    def __init__(
        self, v2: Application, metrics: Application | None, routes: VertexAiRoutes, default: DefaultModel
    ) -> None:
        self._v2 = v2
        self._metrics = metrics
        self._routes = routes
        self._default = default

    def __call__(self, head: RequestHead) -> Handler:
        if head.target == self._routes.health:
            return handler_by(self._v2, head, inner_head(head, head.method, "/v2/health/ready"))
        if head.target != self._routes.predict:
            return empty(head, 400)
        redirect = head.headers.get(HEADER)
        if redirect is not None:
            return self._redirected(head, f"/{redirect}")
        if not self._default.name:
            return with_error(head, UnavailableError("the models are being loaded: try again in a moment"))
        return self._infer(head, head.method, f"/v2/models/{self._default.name}/infer")

    def _redirected(self, head: RequestHead, target: str) -> Handler:
        if head.method != "POST":
            return wrong_method(head, "POST")
        method = method_of(target)
        if not method:
            return empty(head, 403 if is_forbidden(target) else 400)
        if is_inference(target):
            return self._infer(head, method, target)
        if target != METRICS:
            return handler_by(self._v2, head, inner_head(head, method, target))
        if self._metrics is None:
            return empty(head, 400)
        return handler_by(self._metrics, head, inner_head(head, method, target))

    def _infer(self, head: RequestHead, method: str, target: str) -> Handler:
        try:
            size = VERTEX_AI.json_bytes(head.headers)
        except InvalidArgumentError as error:
            return with_error(head, error)
        return handler_by(self._v2, head, inner_head(head, method, target, size))
