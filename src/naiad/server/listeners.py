"""All listeners of a server: those of the protocols, and those of cloud platforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from naiad.server.build import Frontend, Parts, listeners, metrics_application

if TYPE_CHECKING:
    from naiad.frontends.http.server.exchange import Application


def all_listeners(parts: Parts) -> Iterator[tuple[Frontend, str]]:
    """Every listener that the options ask for, as ``build.listeners`` has them."""
    yield from listeners(parts)
    yield from cloud_ports(parts)


def cloud_ports(
    parts: Parts,
    around_v2: Callable[[Application], Application] = lambda application: application,
    around_metrics: Callable[[Application], Application] = lambda application: application,
) -> Iterator[tuple[Frontend, str]]:
    """The listeners for SageMaker and Vertex AI; the other arguments wrap the v2 API and the metrics page there.

    Raises:
        OptionError: a variable of the platform is missing or wrong.
    """
    if parts.options.allow_sagemaker or parts.options.allow_vertex_ai:
        # Imported here: other servers do not pay for it.
        from naiad.server.cloud import cloud_listeners

        yield from cloud_listeners(parts, around_v2, lambda: around_metrics(metrics_application(parts)))
