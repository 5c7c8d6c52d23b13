"""``Route``: one row of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from naiad.engine.engine import Engine
from naiad.frontends.http.server.exchange import Handler
from naiad.frontends.http.server.replies import JSON


class Route(NamedTuple):
    """``make`` makes the handler for a path that matches ``pattern`` in full. Its arguments are the engine, the name of
    the model or the region in the path ("" for none), and the version.

    ``wrong_method_type`` is the content type of the 405 for other methods.
    """

    method: str
    pattern: re.Pattern[str]
    make: Callable[[Engine, str, str | None], Handler]
    wrong_method_type: str = JSON


def make_route(
    method: str, pattern: str, make: Callable[[Engine, str, str | None], Handler], type_: str = JSON
) -> Route:
    """A row of the table; arguments as the fields of ``Route``, ``pattern`` as a regular expression."""
    return Route(method, re.compile(pattern), make, type_)
