"""Which endpoints need a token, and when the server starts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from naiad.pytriton.constants import TRITON_ACCESS_HEADER
from naiad.pytriton.exceptions import PyTritonValidationError

DEFAULT_PROTECTED_ENDPOINTS: Final = ["shared-memory", "model-repository", "statistics", "trace", "logging"]
VALID_TRITON_ENDPOINTS: Final = frozenset(
    (*DEFAULT_PROTECTED_ENDPOINTS, "health", "metadata", "inference", "model-config")
)


@dataclass
class TritonLifecyclePolicy:
    """When the server starts.

    Attributes:
        launch_triton_on_startup: at the beginning of a ``with`` statement, rather than with ``run`` or ``serve``.
        local_model_store: without a meaning here: models are part of the program.
    """

    launch_triton_on_startup: bool = True
    local_model_store: bool = False


DefaultTritonLifecyclePolicy: Final = TritonLifecyclePolicy()
VertextAILifecyclePolicy: Final = TritonLifecyclePolicy(launch_triton_on_startup=False, local_model_store=True)


@dataclass
class TritonSecurityConfig:
    """The token of protected endpoints.

    Attributes:
        access_token: what callers send in ``triton-access-token``; None for a random one.
        restricted_endpoints: what needs it; None for all that changes or shows the server, ``[]`` for nothing.
    """

    access_token: str | None = None
    restricted_endpoints: list[str] | None = None

    def __post_init__(self) -> None:
        """Check the names, and make a token where one is needed."""
        if self.restricted_endpoints is None:
            self.restricted_endpoints = list(DEFAULT_PROTECTED_ENDPOINTS)
        if unknown := sorted(set(self.restricted_endpoints) - VALID_TRITON_ENDPOINTS):
            raise PyTritonValidationError(
                f"Invalid endpoint names: {', '.join(unknown)}. Valid endpoints are: "
                f"{', '.join(sorted(VALID_TRITON_ENDPOINTS))}"
            )
        if self.access_token is None and self.restricted_endpoints:
            self.access_token = secrets.token_urlsafe(32)

    def options(self, own: Mapping[str, str]) -> dict[str, list[str]]:
        """The server's options for it.

        Args:
            own: rules of the program by option, ``<endpoints>:<header>=<value>``. Their endpoints have no second rule.
        """
        names = ("http_restricted_api", "grpc_restricted_protocol")
        return {name: rules for name in names if (rules := self._rules(own.get(name, "")))}

    def _rules(self, own: str) -> list[str]:
        rules, taken = [own] if own else [], own.partition(":")[0].split(",")
        left = [endpoint for endpoint in self.restricted_endpoints or () if endpoint not in taken]
        if self.access_token and left:
            rules.append(f"{','.join(left)}:{TRITON_ACCESS_HEADER}={self.access_token}")
        return rules
