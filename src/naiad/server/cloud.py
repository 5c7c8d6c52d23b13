"""The listeners of the ports of SageMaker and Vertex AI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from naiad.frontends.http.cloud.default_model import DefaultModel
from naiad.frontends.http.cloud.sagemaker import SageMakerApplication, feature_of_sagemaker
from naiad.frontends.http.cloud.sagemaker_models import SageMakerModels
from naiad.frontends.http.cloud.sagemaker_settings import SageMakerSettings
from naiad.frontends.http.cloud.vertex_ai import VertexAiApplication
from naiad.frontends.http.cloud.vertex_ai_settings import VertexAiRoutes
from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.server.access_log import with_request_log
from naiad.frontends.http.server.cross_site import without_cross_site
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.http.v2.route_table import RouteServices
from naiad.frontends.http.v2.router import Router
from naiad.lifecycle.added_models import AddedModels
from naiad.server.limits import http_limits, too_large_error
from naiad.server.request_log import follow_log

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application
    from naiad.server.build import Frontend, Parts


def cloud_listeners(
    parts: Parts,
    around_v2: Callable[[Application], Application],
    metrics: Callable[[], Application],
    environ: Mapping[str, str] = os.environ,
) -> Iterator[tuple[Frontend, str]]:
    """The listeners that the options ask for, each with its title for the log.

    Args:
        around_v2: wraps the v2 API.
        metrics: makes what writes the metrics page.

    Raises:
        OptionError: a variable of the platform is missing or wrong.
    """
    if parts.options.allow_sagemaker:
        yield _sagemaker(parts, SageMakerSettings.from_environment(environ)), "Sagemaker HTTPService"
    if parts.options.allow_vertex_ai:
        routes = VertexAiRoutes.from_environment(environ)
        yield _vertex_ai(parts, around_v2, metrics, routes), "Vertex AI HTTPService"


def _sagemaker(parts: Parts, settings: SageMakerSettings) -> HttpListener:
    options = parts.options
    v2 = _router(parts)
    loads = AddedModels(parts.manager, parts.catalog, options.model_control_mode == "explicit")
    models = SageMakerModels(RouteServices(parts.engine, v2.json_work), loads, settings.models_root)
    application = guarded(SageMakerApplication(v2, models, settings), parts.gates.http, feature_of_sagemaker)
    application = without_cross_site(application, options.http_cors_origin, feature_of_sagemaker)
    return _listener(parts, application, options.sagemaker_address, options.sagemaker_port, "sagemaker", v2)


def _vertex_ai(
    parts: Parts,
    around_v2: Callable[[Application], Application],
    metrics: Callable[[], Application],
    routes: VertexAiRoutes,
) -> HttpListener:
    options = parts.options
    v2 = _router(parts)
    page = None
    if options.allow_metrics:
        page = guarded(metrics(), parts.gates.metrics, lambda target: "statistics")
    default = DefaultModel(parts.engine, options.vertex_ai_default_model)
    application = VertexAiApplication(guarded(around_v2(v2), parts.gates.http), page, routes, default)
    listener = _listener(parts, application, options.vertex_ai_address, options.vertex_ai_port, "vertex_ai", v2)

    def choose_default() -> str:
        problem = default.choose()
        # Requests that came before were told to try again.
        listener.forget_heads()
        return f"failed to start Vertex AI service: {problem}" if problem else ""

    parts.start_checks.append(choose_default)
    return listener


def _router(parts: Parts) -> Router:
    # Headers become no parameters on these ports, as in the reference.
    return Router(parts.engine, parts.options.http_max_input_size, None, too_large_error(parts.options))


def _listener(
    parts: Parts, application: Application, address: str, port: int, protocol: str, v2: Router
) -> HttpListener:
    """The listener of one port; ``protocol`` names it among the metrics and in its option."""
    options = parts.options
    listener = HttpListener(
        with_request_log(application, parts.log.settings.log_verbose_level),
        address,
        port,
        limits=http_limits(options, parts.shares),
        option=f"--{protocol.replace('_', '-')}-port",
        budget=parts.budget,
        on_abort=v2.close,
    )
    parts.ports[protocol] = listener
    follow_log(parts.log, listener, application)
    return listener
