"""Whether this machine has a service account of Google's attached."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/email"
_WAIT_S: Final = 2.0


def has_service_account(environ: Mapping[str, str]) -> bool:
    """Ask the machine's metadata server, which only Google's machines have. Takes up to two seconds."""
    host = environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
    request = urllib.request.Request(f"http://{host}{_PATH}", headers={"Metadata-Flavor": "Google"})
    # Past any proxy: another machine must not answer for this one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_WAIT_S) as response:
            # A network may resolve any name; only a metadata server sends this header.
            return bool(response.headers.get("Metadata-Flavor") == "Google")
    except (urllib.error.URLError, OSError, ValueError):
        return False
