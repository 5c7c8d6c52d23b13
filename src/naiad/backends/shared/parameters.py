"""Reading the string parameters of a model: typed values, and errors that name the parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from naiad.errors import ModelLoadError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


class ParameterReader:
    """The ``parameters`` of one model configuration, or the ``--backend-config`` settings of one backend.

    Every reader gives the default when the parameter is absent and raises ``ModelLoadError``, naming the parameter,
    what was found and what was expected, when its value does not fit.
    """

    def __init__(self, model: str, values: Mapping[str, str], kind: str = "parameter") -> None:
        self._model = model
        self._values = values
        self._kind = kind

    def integer(self, name: str, default: int, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.refused(name, f"a whole number of at least {minimum}") from None
        if value < minimum:
            raise self.refused(name, f"a whole number of at least {minimum}")
        return value

    def number(self, name: str, default: float, minimum: float = 0.0) -> float:
        """A finite number of at least ``minimum``."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.refused(name, f"a number of at least {minimum:g}") from None
        # In this direction NaN is refused as well.
        if not minimum <= value < float("inf"):
            raise self.refused(name, f"a number of at least {minimum:g}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        """``true`` or ``1``, ``false`` or ``0``, in any case."""
        text = self._values.get(name)
        if text is None:
            return default
        value = _BOOLEANS.get(text.strip().lower())
        if value is None:
            raise self.refused(name, '"true" or "false"')
        return value

    def text(self, name: str) -> str | None:
        """The value as it stands, None when absent."""
        return self._values.get(name)

    def refused(self, name: str, expected: str) -> ModelLoadError:
        """The error for a value that does not fit; ``expected`` completes "expected ..."."""
        return ModelLoadError(
            f"model '{self._model}': {self._kind} '{name}' is \"{self._values[name]}\", expected {expected}"
        )
