"""Requests and responses as inference functions see them."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
ParameterValue = str | int | bool | float


class _Tensors:
    """Arrays by name."""

    data: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.data[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self.data[name] = array

    def __delitem__(self, name: str) -> None:
        del self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def items(self) -> ItemsView[str, Array]:
        """Names with arrays."""
        return self.data.items()

    def keys(self) -> KeysView[str]:
        """Names."""
        return self.data.keys()

    def values(self) -> ValuesView[Array]:
        """Arrays."""
        return self.data.values()


@dataclass
class Request(_Tensors):
    """The inputs of one request by name.

    Attributes:
        data: the inputs. Arrays of BYTES have elements of ``bytes``.
        parameters: of the request, with the headers that the server forwards.
        span: always None here; traces are the server's.
        requested_output_names: the outputs that the caller wants.
    """

    data: dict[str, Array]
    parameters: dict[str, ParameterValue] | None = None
    span: Any | None = None
    requested_output_names: list[str] | None = None

    def traced_span(self, span_name: str) -> AbstractContextManager[None]:
        """A context that does nothing: the server's own traces cover the request."""
        return nullcontext()


@dataclass
class Response(_Tensors):
    """The outputs of one response by name."""

    data: dict[str, Array]


Requests = list[Request]
Responses = list[Response]
