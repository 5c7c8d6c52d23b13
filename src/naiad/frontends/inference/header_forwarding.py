"""Headers of a caller that become parameters of its requests (``--http-header-forward-pattern`` and that of gRPC)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from naiad.errors import InvalidArgumentError
from naiad.options.header_pattern import HeaderPattern
from naiad.request import Parameters
from naiad.wire.v2.plan import InferPlan

Plan = TypeVar("Plan", bound=InferPlan[Any])

RESERVED: Final = frozenset(
    (
        *("sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers"),
        *("binary_data_output", "binary_data_encoding"),
    )
)
"""Parameters that the server itself reads."""
RESERVED_PREFIX: Final = "triton_"


class AddedParameters:
    """The parameters that all requests with one head get, and the last plan that was made with them."""

    __slots__ = ("_given", "_made", "_names", "_parameters")

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._names = {name.lower() for name in parameters}
        self._given: InferPlan[Any] | None = None
        self._made: Any = None

    def added_to(self, plan: Plan) -> Plan:
        """``plan`` with these parameters in addition to its own, of which they replace those with the same name.

        Raises:
            InvalidArgumentError: a parameter of the plan has the name of one of these in another case.
        """
        if plan is not self._given:
            if plan.parameters:
                self._check(plan.parameters)
            self._given, self._made = plan, plan.with_parameters(self._parameters)
        made: Plan = self._made
        return made

    def _check(self, given: Parameters) -> None:
        """Refuse names that differ in case alone: a model that folds case could take the body's word for a header
        that a proxy vouches for.
        """
        for name in given:
            if name not in self._parameters and name.lower() in self._names:
                header = next(header for header in self._parameters if header.lower() == name.lower())
                raise InvalidArgumentError(
                    f"parameter '{name}' has the name of the header '{header}', which is forwarded as a parameter, in "
                    "another case; leave it out, or write it as the header"
                )


class HeaderForwarding:
    """Chooses the headers whose names match a pattern."""

    __slots__ = ("_pattern",)

    def __init__(self, pattern: str) -> None:
        self._pattern = HeaderPattern(pattern)

    def choose(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The headers that are forwarded, by name; of repeated ones the last counts.

        Raises:
            InvalidArgumentError: a forwarded header has a reserved name.
        """
        chosen = {name: value for name, value in headers if self._pattern.matches(name)}
        for name in chosen:
            if name.lower().startswith(RESERVED_PREFIX) or name.lower() in RESERVED:
                raise InvalidArgumentError(f"Header '{name}' is reserved for Triton usage and cannot be forwarded.")
        return chosen
