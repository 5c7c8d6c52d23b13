"""Refuses values of classes that a field of a configuration does not take."""

from __future__ import annotations

from naiad.navigator.exceptions import ModelNavigatorWrongParameterError


def check_kind(field: str, value: object, *kinds: type) -> None:
    """Check that a value is of one of some classes.

    Raises:
        ModelNavigatorWrongParameterError: it is not.
    """
    if not isinstance(value, kinds):
        raise ModelNavigatorWrongParameterError(
            f"found {field}={value}, expected {' or '.join(kind.__name__ for kind in kinds)}"
        )
