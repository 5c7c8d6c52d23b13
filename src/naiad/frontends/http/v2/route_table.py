"""``Route``: one row of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, NamedTuple, Protocol

from naiad.frontends.http.json_worker.pool import JsonWork
from naiad.frontends.http.server.exchange import Handler
from naiad.frontends.http.server.replies import JSON

if TYPE_CHECKING:
    from naiad.engine.engine import Engine
    from naiad.engine.facade import InferenceEngine


@dataclass(frozen=True, slots=True)
class RouteServices:
    """What handlers are made with: the models, and what reads and writes large JSON."""

    engine: Engine
    json_work: JsonWork


class InferenceServices(Protocol):
    """The part of ``RouteServices`` that inference needs."""

    @property
    def engine(self) -> InferenceEngine: ...
    @property
    def json_work(self) -> JsonWork: ...


class Route(NamedTuple):
    """``make`` makes the handler for a path that matches ``pattern`` in full. Its arguments are the services, the name
    of the model or the region in the path ("" for none), and the version.

    ``wrong_method_type`` is the content type of the 405 for other methods.
    """

    method: str
    pattern: re.Pattern[str]
    make: Callable[[RouteServices, str, str | None], Handler]
    wrong_method_type: str = JSON


def make_route(
    method: str, pattern: str, make: Callable[[Engine, str, str | None], Handler], type_: str = JSON
) -> Route:
    """A row of the table whose handlers need the engine alone; arguments as ``inference_route``."""

    # With the docstring of ``make``, which describes the route.
    @wraps(make)
    def with_engine(services: RouteServices, name: str, version: str | None) -> Handler:
        return make(services.engine, name, version)

    return Route(method, re.compile(pattern), with_engine, type_)


def inference_route(
    method: str, pattern: str, make: Callable[[RouteServices, str, str | None], Handler], type_: str = JSON
) -> Route:
    """A row of the table; arguments as the fields of ``Route``, ``pattern`` as a regular expression."""
    return Route(method, re.compile(pattern), make, type_)
