"""All listeners of a server: those of the protocols, of cloud platforms and of the API of OpenAI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from naiad.server.build import Frontend, Parts, listeners, metrics_application

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application


def all_listeners(parts: Parts) -> Iterator[tuple[Frontend, str]]:
    """Every listener that the options ask for, as ``build.listeners`` has them."""
    yield from listeners(parts)
    yield from further_ports(parts)


def further_ports(
    parts: Parts,
    around_v2: Callable[[Application], Application] = lambda application: application,
    around_metrics: Callable[[Application], Application] = lambda application: application,
) -> Iterator[tuple[Frontend, str]]:
    """The listeners for SageMaker, Vertex AI and the API of OpenAI; the other arguments wrap the v2 API and the metrics
    page there.

    Raises:
        OptionError: a variable of the platform is missing or wrong.
    """
    if parts.options.allow_sagemaker or parts.options.allow_vertex_ai:
        # Imported here: other servers do not pay for it.
        from naiad.server.cloud import cloud_listeners

        yield from cloud_listeners(parts, around_v2, lambda: around_metrics(metrics_application(parts)))
    if parts.options.allow_openai:
        from naiad.server.openai import openai_listener

        yield openai_listener(parts, lambda: around_metrics(metrics_application(parts))), "OpenAI HTTPService"
