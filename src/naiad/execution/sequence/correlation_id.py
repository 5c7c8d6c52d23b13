"""The type of the correlation ids of a model: numbers or texts, as its CORRID control takes them.

Source: the check of the reference server (``ValidateCorrelationId``).
"""

from __future__ import annotations

from naiad.config.spec import ControlSpec, SequenceSpec
from naiad.errors import InvalidArgumentError
from naiad.request import InferRequest, request_label


def correlation_is_text(sequence: SequenceSpec) -> bool | None:
    """Whether ids are texts (True) or numbers (False); None for a model without that control."""
    control = _correlation(sequence)
    return None if control is None else control.tensor.dtype.is_bytes


def misfit(model: str, sequence: SequenceSpec, request: InferRequest) -> InvalidArgumentError:
    """The error for a request whose id has the type that the model's control does not take."""
    control = _correlation(sequence)
    name, expected = ("", "") if control is None else (control.tensor.name, control.tensor.dtype.wire)
    found = "BYTES" if isinstance(request.options.correlation_id, str) else "UINT64"
    return InvalidArgumentError(
        f"{request_label(request.id)}sequence batching control '{name}' data-type is '{found}', but model '{model}' "
        f"expects '{expected}'"
    )


def _correlation(sequence: SequenceSpec) -> ControlSpec | None:
    return next((control for control in sequence.controls if control.kind == "CORRID"), None)
