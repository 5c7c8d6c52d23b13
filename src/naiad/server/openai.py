"""The listener of the API of OpenAI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from naiad.frontends.http.server.access_gate import guarded
from naiad.frontends.http.server.access_log import with_request_log
from naiad.frontends.http.server.cors import shared_with
from naiad.frontends.http.server.cross_site import without_cross_site
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.openai.access import refuse_cross_site, refusing
from naiad.frontends.openai.application import OpenAiApplication, feature_of_openai
from naiad.frontends.openai.errors import refusal_json
from naiad.frontends.openai.inference import OpenAiInference
from naiad.frontends.openai.models import OpenAiModels
from naiad.frontends.openai.settings import openai_settings
from naiad.server.limits import http_limits
from naiad.server.request_log import follow_log

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application
    from naiad.server.build import Parts


def openai_listener(parts: Parts, metrics: Callable[[], Application]) -> HttpListener:
    """The listener; ``metrics`` makes what writes the metrics page.

    Raises:
        OptionError: the tokenizer or the chat template cannot be used.
    """
    options = parts.options
    settings = openai_settings(options)
    application: Application = OpenAiApplication(
        parts.engine,
        OpenAiInference(parts.engine, parts.catalog, settings, parts.budget),
        OpenAiModels(parts.engine, parts.catalog, settings, parts.budget),
        metrics() if options.allow_metrics else None,
    )
    application = guarded(application, parts.gates.openai, feature_of_openai, refusing)
    origins = options.http_cors_origin
    application = without_cross_site(application, origins, feature_of_openai, refuse_cross_site)
    application = shared_with(application, origins)
    listener = HttpListener(
        with_request_log(application, parts.log.settings.log_verbose_level),
        options.openai_address,
        options.openai_port,
        # Clients of this API know 413.
        limits=replace(http_limits(options, parts.shares), too_large_status=413),
        option="--openai-port",
        budget=parts.budget,
        error_json=refusal_json,
    )
    parts.ports["openai"] = listener
    follow_log(parts.log, listener, application)
    return listener
