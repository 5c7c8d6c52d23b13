"""Who may see the dashboard, and what of it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from naiad.errors import NaiadError, RestrictedError
from naiad.frontends.http.server.cross_site import is_cross_site

if TYPE_CHECKING:
    from naiad.frontends.access.gate import Gate
    from naiad.frontends.access.keys import KnownKey
    from naiad.wire.http1.head import RequestHead

AUTO: Final = "auto"
OFF: Final = "off"
VIEW: Final = "statistics"
"""The feature of the API that a caller needs to see anything."""
FEATURES: Final = ("statistics", "inference", "model-config", "model-repository", "trace", "logging")
"""What a caller may be allowed to do; the page shows the rest as locked."""
_OTHER_SITE: Final = "the request comes from a page of another site, and the dashboard takes those of its own page only"


class DashboardAccess:
    """The rules of ``--dashboard`` beside those of the API.

    Args:
        mode: ``auto`` serves callers on this machine, and others only if the server has API keys; ``on`` serves all.
        gate: the rules of the HTTP port.
        has_keys: every request needs an API key.
    """

    def __init__(self, mode: str, gate: Gate, has_keys: bool) -> None:
        self._is_local_only = mode == AUTO and not has_keys
        self._gate = gate
        self.has_keys = has_keys

    def refusal(self, head: RequestHead, peer: str) -> str:
        """Why a caller at the address ``peer`` gets nothing at all, "" for a caller that may go on."""
        if not self._is_local_only:
            return ""
        if not is_loopback(peer):
            return (
                "the dashboard is served to this machine only: start the server with --api-key or --api-key-file, so "
                "that callers elsewhere need a key, or with --dashboard=on to serve it to everybody"
            )
        # A page elsewhere can give its own name this machine's address; the browser still sends that name.
        host = host_name(head.headers.get("host", ""))
        if not (host in ("", "localhost") or host.endswith(".localhost") or is_loopback(host)):
            return (
                f"the dashboard is served under the names of this machine only, such as localhost, not '{host}': use "
                "API keys, or start the server with --dashboard=on"
            )
        return ""

    def admit(self, feature: str, head: RequestHead) -> KnownKey | None:
        """Let a request for data pass; returns its key if that has a rate limit.

        Raises:
            RestrictedError: it comes from a page of another site.
            NaiadError: as ``Gate.admit``.
        """
        if is_cross_site(head):
            raise RestrictedError(_OTHER_SITE)
        return self._gate.admit(feature, head.headers)

    def allowed(self, head: RequestHead) -> frozenset[str]:
        """Those of ``FEATURES`` that the request may use."""
        return frozenset(feature for feature in FEATURES if self._may(feature, head))

    def _may(self, feature: str, head: RequestHead) -> bool:
        try:
            self._gate.admit(feature, head.headers)
        except NaiadError:
            return False
        return True


def host_name(host: str) -> str:
    """The name in a ``Host`` header, in lower case and without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own; False for a text that is no address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback
