"""Parts of configurations, as a user would write them."""

from __future__ import annotations


def parameter(key: str, value: object) -> str:
    """A parameter of a model."""
    return f' parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '


def parameters(**values: object) -> str:
    """Parameters of a model."""
    return "".join(parameter(key, value) for key, value in values.items())
