"""The parameter ``slo`` of a model that is tuned while it serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.freeze import parameters
from naiad.config.problems import Violation
from naiad.options.latency_objective import OFF, PARAMETER, read_objective


def violations(config: Any) -> Iterator[Violation]:
    """A value that states no objective."""
    text = parameters(config).get(PARAMETER)
    if text is None or text.strip() == OFF:
        return
    try:
        read_objective(text)
    except ValueError as error:
        message = f"parameter '{PARAMETER}' of model '{config.name}': {error}. \"{OFF}\" is for a model without one"
        yield Violation(f'parameters["{PARAMETER}"]', message)
