"""``Gate`` decides by its headers whether a request may pass, once for all requests with the same head."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from naiad.errors import RestrictedError, ScopeError, UnauthenticatedError
from naiad.frontends.access.features import HEALTH_FEATURE, scopes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from naiad.frontends.access.keys import KeyRing, KnownKey
    from naiad.options.restriction import Restriction

AUTHORIZATION: Final = "authorization"
_SEND_KEY: Final = "send one as 'Authorization: Bearer <key>'"


class Gate:
    """The rules of one protocol.

    Args:
        restrictions: which features require which header.
        keys: the API keys, one of which every request but a health check must show; None if no key is required.
        prefix: the prefix of the restrictions' header names.
        kind: the word for a feature in the text of a refusal, ``API`` or ``protocol``.
    """

    def __init__(
        self, restrictions: Iterable[Restriction] = (), keys: KeyRing | None = None, prefix: str = "", kind: str = "API"
    ) -> None:
        self._keys = keys
        self._kind = kind
        self._required = {
            feature: (prefix + group.key, group.value.encode()) for group in restrictions for feature in group.features
        }

    @property
    def is_open(self) -> bool:
        """Whether every request passes."""
        return self._keys is None and not self._required

    def admit(self, feature: str, headers: Mapping[str, str]) -> KnownKey | None:
        """Let a request for ``feature`` pass; returns the key that it counts for, if that key has a rate limit.

        ``headers`` have lower-case names and Latin-1 text.

        Raises:
            UnauthenticatedError: the request shows no API key, or an unknown one.
            ScopeError: the API key lacks the scope.
            RestrictedError: the header that opens the feature is missing, or has another value.
        """
        key = self._authenticate(feature, headers)
        required = self._required.get(feature)
        if required is not None:
            self._check_header(headers, *required)
        return key if key is not None and key.is_limited else None

    def _authenticate(self, feature: str, headers: Mapping[str, str]) -> KnownKey | None:
        # The senders of health checks rarely have a key.
        if self._keys is None or feature == HEALTH_FEATURE:
            return None
        scheme, _, shown = headers.get(AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthenticatedError(f"an API key is needed; {_SEND_KEY}")
        known = self._keys.find(shown.strip(" "))
        if known is None:
            raise UnauthenticatedError("the API key is not known", "invalid_token")
        wanted = scopes_of(feature)
        if wanted.isdisjoint(known.key.scopes):
            scope = " or ".join(sorted(wanted))
            has = ", ".join(sorted(known.key.scopes))
            raise ScopeError(
                f"the API key '{known.key.name}' is not for {feature}: it has {has}, and {scope} is needed", scope
            )
        return known

    def _check_header(self, headers: Mapping[str, str], header: str, value: bytes) -> None:
        sent = headers.get(header.lower())
        # Compared in constant time: the value of a restriction is a secret.
        if sent is None or not hmac.compare_digest(sent.encode("latin-1", "replace"), value):
            raise RestrictedError(f"This {self._kind} is restricted, expecting header '{header}'")
