"""``InferenceResponse``: a response to a request."""

from __future__ import annotations

from typing import Any, Sequence

from ..ipc.errors import TritonError, TritonModelException
from ..ipc.schemas import checked_parameters
from .tensor import Tensor

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class InferenceResponse:
    """Output tensors, or an error, and parameters of type bool, int or str by name.

    Raises:
        TritonModelException: a tensor is missing, or a parameter has a wrong type.
    """

    __slots__ = ("_error", "_parameters", "_tensors")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Any | None = None,
    ) -> None:
        tensors = list(output_tensors)
        for tensor in tensors:
            # The exact type is the usual one, and cheaper to test than ``isinstance``.
            if type(tensor) is not Tensor:
                _check_tensor(tensor)
        if error is not None and not isinstance(error, TritonError):
            raise TypeError(f"InferenceResponse: the error must be a TritonError, found {type(error)}")
        self._tensors = tensors
        self._error = error
        self._parameters = "{}" if parameters is None else checked_parameters(parameters)

    def output_tensors(self) -> list[Tensor]:
        """The output tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether this is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, None without one."""
        return self._error

    def parameters(self) -> str:
        """The parameters as JSON."""
        return self._parameters


def _check_tensor(tensor: Any) -> None:
    if tensor is None:
        raise TritonModelException("Output tensor for inference response should not be empty.")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"InferenceResponse: output_tensors must be Tensor objects, found {type(tensor)}")
