"""A real S3 server (moto's) behind a proxy that counts what is asked and can answer wrongly."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

BUCKET = "models"
REGION = "us-east-1"
_SIGNED = "AWS4-HMAC-SHA256 Credential=test/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@dataclass(slots=True)
class Asked:
    """One request for an object: its key, and the bytes that it asks for."""

    key: str
    range: str


@dataclass(slots=True)
class Faked:
    """What the proxy does instead of, or to, the answer of the server behind it."""

    status: int = 0
    body: Callable[[bytes], bytes] = lambda body: body
    sent: float = 1.0


@dataclass(slots=True)
class S3:
    """The server. ``fault`` is asked about each request for an object, before the server behind is.

    Attributes:
        asked: the requests for objects so far.
        listings: how often anything was listed.
        decodes: paths are taken as Google takes them, and unsigned requests pass.
    """

    client: Any
    port: int
    asked: list[Asked] = field(default_factory=list)
    listings: int = 0
    fault: Callable[[Asked], Faked | None] = lambda asked: None
    decodes: bool = False

    def uri(self, path: str = "repo") -> str:
        """The address of a folder of the bucket."""
        return f"s3://127.0.0.1:{self.port}/{BUCKET}/{path}"

    def put(self, key: str, body: bytes | str = b"") -> None:
        """Write an object."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=body.encode() if isinstance(body, str) else body)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.client.delete_object(Bucket=BUCKET, Key=key)

    def asked_keys(self) -> list[str]:
        """The keys that were asked for."""
        return [asked.key for asked in self.asked]

    def forget(self) -> None:
        """Count anew, and answer rightly."""
        self.asked.clear()
        self.listings = 0
        self.fault = lambda asked: None


class Proxy(ThreadingHTTPServer):
    """Hands requests on to ``behind`` and tells ``s3`` of them."""

    daemon_threads = True

    def __init__(self, behind: int, s3: S3) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.s3 = s3

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Peers that go are no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        fake: Faked | None = None
        s3 = self.server.s3
        path = urlsplit(self.path)
        key = unquote(path.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if key and "list-type" not in path.query and self.command == "GET":
            asked = Asked(key, self.headers.get("Range", ""))
            s3.asked.append(asked)
            fake = s3.fault(asked)
        elif self.command == "GET":
            s3.listings += 1
            fake = s3.fault(Asked("", ""))
        if fake is not None and fake.status:
            self._send(fake.status, {}, b"<Error><Code>Faked</Code></Error>", 1.0)
            return
        status, headers, body = self._behind()
        self._send(status, headers, (fake or Faked()).body(body), (fake or Faked()).sent)

    do_HEAD = do_GET

    def _behind(self) -> tuple[int, dict[str, str], bytes]:
        peer = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=30)
        try:
            path, headers = self.path, dict(self.headers.items())
            if self.server.s3.decodes:
                path, headers["Authorization"] = unquote(path).replace(" ", "%20"), _SIGNED
            peer.request(self.command, path, headers=headers)
            answer = peer.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            peer.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes, sent: float) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: int(len(body) * sent)])
        if sent < 1:
            self.close_connection = True


@contextmanager
def s3_server() -> Iterator[S3]:
    """The server, with an empty bucket, for as long as the block lasts."""
    import boto3
    from botocore.config import Config
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    _, behind = moto.get_host_and_port()
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{behind}",
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(proxies={}),
    )
    s3 = S3(client, 0)
    proxy = Proxy(behind, s3)
    s3.port = proxy.server_address[1]
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        client.create_bucket(Bucket=BUCKET)
        # All servers of one process keep the same objects.
        empty(s3)
        yield s3
        client.close()
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
        moto.stop()


def empty(s3: S3) -> None:
    """Remove every object and forget what was asked."""
    for page in s3.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for found in page.get("Contents", []):
            s3.delete(found["Key"])
    s3.forget()
    s3.decodes = False
