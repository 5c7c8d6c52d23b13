"""A real HTTP server for tests that hands out what it is given, with ranges and ETags."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, bytes]


@dataclass(slots=True)
class WebFolder:
    """Files by path; ``other`` answers for every other path (with its query).

    Attributes:
        asked: method, path and header Range of the requests so far.
        authorization: that of the last request.
        is_down: every request is answered 503.
        refuses_head: HEAD is answered 403.
        redirect: where every request is sent on to.
        before_get: called before each answer to a GET.
    """

    port: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    other: Callable[[str], Answer] = lambda path: (404, b"")
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    authorization: str = ""
    has_ranges: bool = True
    has_tags: bool = True
    is_down: bool = False
    refuses_head: bool = False
    redirect: str = ""
    before_get: Callable[[], None] = lambda: None

    def url(self, path: str) -> str:
        """The address of a file."""
        return f"http://127.0.0.1:{self.port}/{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        folder: WebFolder = self.server.folder
        path = self.path.removeprefix("/")
        asked = self.headers.get("Range", "")
        folder.asked.append((self.command, path, asked))
        folder.authorization = self.headers.get("Authorization", "")
        if folder.redirect:
            self._send(302, b"", {"Location": folder.redirect})
            return
        if folder.is_down or (folder.refuses_head and self.command == "HEAD"):
            self._send(503 if folder.is_down else 403, b"", {})
            return
        if self.command == "GET":
            folder.before_get()
        body = folder.files.get(path.partition("?")[0])
        if body is None:
            self._send(*folder.other(path), {"Content-Type": "application/json"})
            return
        headers = {"ETag": f'"{hashlib.sha1(body).hexdigest()}"'} if folder.has_tags else {}
        if folder.has_ranges:
            headers["Accept-Ranges"] = "bytes"
        if asked and folder.has_ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            part = body[int(first) : int(last) + 1]
            self._send(206, part, {**headers, "Content-Range": f"bytes {first}-{last}/{len(body)}"})
        else:
            self._send(200, body, headers)

    do_HEAD = do_GET

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def web_folder() -> Iterator[WebFolder]:
    """Such a server, for as long as the block lasts."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    folder = WebFolder(server.server_address[1])
    server.folder = folder  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield folder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
