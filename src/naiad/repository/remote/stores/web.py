"""Files behind ``http://`` and ``https://``, with the standard library alone."""

from __future__ import annotations

import base64
import http.client
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, Final

from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import redacted
from naiad.repository.remote.stores.store import Level, ObjectChangedError, StoredFile, checked_path, digest

WAIT_S: Final = 30.0
"""Seconds without a response, or without more of it, after which a server counts as unreachable."""
CHUNK_BYTES: Final = 1 << 20
_MAX_JSON: Final = 64 << 20
_REPEATED: Final = (408, 429)
UNKNOWN: Final = "unknown-"
"""The prefix of the version of a file about which its server says nothing."""
_SIZE: Final = re.compile("[0-9]{1,18}")


class Web:
    """Sends requests to one server; the headers of ``sign_in`` are not sent to servers that it redirects to."""

    def __init__(self, sign_in: Mapping[str, str]) -> None:
        self._sign_in = dict(sign_in)

    @contextmanager
    def request_file(self, url: str, operation: str, method: str = "GET", **headers: str) -> Iterator[Any]:
        """The response to a request, whose body is still to be read.

        Raises:
            ObjectChangedError: there is no such file, or it has changed.
            StoreUnreachableError: no response, or a temporary error.
            StoreError: the server refuses.
        """
        what = f"cannot {operation} '{redacted(url)}'"
        request = urllib.request.Request(url, headers=headers, method=method)
        for name, value in self._sign_in.items():
            request.add_unredirected_header(name, value)
        try:
            with closing(_opener().open(request, timeout=WAIT_S)) as response:
                yield response
        except urllib.error.HTTPError as error:
            error.close()
            raise _refusal(what, error.code, error.reason) from None
        except urllib.error.URLError as error:
            # Another attempt does not mend a certificate.
            if isinstance(error.reason, ssl.SSLError):
                raise StoreError(f"{what}: {error.reason}") from None
            raise StoreUnreachableError(f"{what}: {redacted(str(error.reason))}") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnreachableError(f"{what}: {error or type(error).__name__}") from None
        except ValueError as error:
            raise StoreError(f"{what}: {redacted(str(error))}") from None

    def json(self, url: str, operation: str) -> Mapping[str, Any]:
        """The JSON object of a response. Raises the errors of ``request_file``, and StoreError for other content."""
        with self.request_file(url, operation) as response:
            # A longer response is cut off, and fails as JSON below.
            text = response.read(_MAX_JSON)
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise StoreError(f"cannot {operation} '{redacted(url)}': the answer is no JSON object")
        return found

    def read(self, url: str, entry: StoredFile, start: int, end: int, has_ranges: bool) -> Iterator[memoryview]:
        """The bytes of a file from ``start`` to ``end``, if it is still the file of ``entry``."""
        if start == end:
            return
        headers = {"Range": f"bytes={start}-{end - 1}"} if has_ranges else {}
        with self.request_file(url, "read", **headers) as response:
            # A server may ignore the range and send the whole file.
            is_part = response.status == 206
            got = response.headers.get("Content-Range", "") if is_part else f"bytes {start}-{end - 1}/{entry.size}"
            # A server that sends no ETag and no time cannot contradict the listing.
            is_same = _version(response.headers) in ("", entry.version) or entry.version.startswith(UNKNOWN)
            if is_part != has_ranges or got.replace(" ", "") != f"bytes{start}-{end - 1}/{entry.size}" or not is_same:
                raise ObjectChangedError(f"'{redacted(url)}' has changed while it was fetched")
            while chunk := response.read(CHUNK_BYTES):
                yield memoryview(chunk)


class WebFile:
    """One file behind an address, as a store.

    Args:
        url: the address; a user name and a password in it are sent as basic authentication.
    """

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        self._url = urllib.parse.quote(urllib.parse.urlunsplit(bare), safe="%/:=&?~#+!$,;'@()*[]")
        self._web = Web(basic(parts.username, parts.password))
        query = f"#{digest(parts.query)[:16]}" if parts.query else ""
        self.identity = redacted(urllib.parse.urlunsplit(bare._replace(query="", fragment=""))) + query
        self.name = urllib.parse.unquote(parts.path.rstrip("/").rpartition("/")[2])
        self.has_ranges = True
        # Without an ETag and a time nothing tells whether the mirror has this file, so each start fetches it again.
        self._unknown = f"{UNKNOWN}{uuid.uuid4().hex}"

    def describe(self) -> StoredFile:
        """The metadata of the file as the server reports it.

        Raises:
            StoreError: the server does not report a size, or there is no such file.
            StoreUnreachableError: the server does not respond.
        """
        try:
            size, headers = self._head()
        except ObjectChangedError as error:
            raise StoreError(str(error)) from None
        if not _SIZE.fullmatch(size):
            raise StoreError(f"'{self.identity}' comes without its size, so nobody knows when it is complete")
        name = checked_path(self.name or "archive", f"'{self.identity}'")
        return StoredFile(name, int(size), _version(headers) or self._unknown)

    def _head(self) -> tuple[str, Mapping[str, str]]:
        """The size and the headers, by HEAD; by a read of one byte where an address is signed for reading alone."""
        try:
            with self._web.request_file(self._url, "look at", "HEAD") as response:
                self.has_ranges = response.headers.get("Accept-Ranges", "").lower() == "bytes"
                return response.headers.get("Content-Length", ""), response.headers
        except StoreUnreachableError:
            # Its base class is caught below, and a second request to a server that is gone would only wait again.
            raise
        except StoreError:
            with self._web.request_file(self._url, "look at", Range="bytes=0-0") as response:
                self.has_ranges = response.status == 206
                whole = response.headers.get("Content-Range", "").rpartition("/")[2]
                return whole if self.has_ranges else response.headers.get("Content-Length", ""), response.headers

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        return [self.describe()]

    def level(self) -> Level:
        return Level((), (self.name,))

    def exists(self, entry: StoredFile) -> bool:
        return True

    def read(self, entry: StoredFile, start: int, end: int) -> Iterator[memoryview]:
        return self._web.read(self._url, entry, start, end, self.has_ranges)


@cache
def _opener() -> urllib.request.OpenerDirector:
    """Knows HTTP alone: a server cannot lead to files of this machine, or to FTP."""
    found = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        found.add_handler(handler)
    return found


def basic(user: str | None, password: str | None) -> dict[str, str]:
    """The header of basic authentication; none without a user."""
    if not user:
        return {}
    pair = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}


def _version(headers: Mapping[str, str]) -> str:
    return headers.get("ETag") or headers.get("Last-Modified") or ""


def _refusal(what: str, code: int, reason: str) -> StoreError:
    text = f"{what}: the server answers {code} {reason}"
    if code >= 500 or code in _REPEATED:
        return StoreUnreachableError(text)
    if code in (404, 410, 412, 416):
        return ObjectChangedError(f"{text}; there is no such file, or it has changed")
    if code in (401, 403):
        return StoreError(f"{text}; it needs other credentials")
    return StoreError(text)
