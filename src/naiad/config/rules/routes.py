"""Routes between versions: the ``parameters`` that begin with ``route``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.freeze import parameters
from naiad.config.problems import Violation
from naiad.config.routes import PREFIX, routes_of_parameters
from naiad.errors import InvalidArgumentError


def violations(config: Any) -> Iterator[Violation]:
    """The first parameter of routes that is wrong."""
    values = {key: text for key, text in parameters(config).items() if key.startswith(PREFIX)}
    if not values:
        return
    try:
        routes_of_parameters(values)
    except InvalidArgumentError as error:
        # The error is the API's too, so it has no place; its text names the parameter.
        place = next((key for key in values if f"'{key}'" in str(error)), "")
        yield Violation(f'parameters["{place}"]' if place else "parameters", f"{error}, in model '{config.name}'")
