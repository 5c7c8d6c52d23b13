"""The same repository in each kind of cloud store, as far as an emulator of it can be had.

Azure: azurite. Google: moto's S3 server, whose listings have the form of Google's XML API, behind a proxy that takes
paths as Google does; Google's own signing is not part of it.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from naiad.errors import StoreError, StoreUnreachableError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.catalog import fetched, open_catalog
from naiad.repository.remote.mirror.objects import PART
from support.s3_server import BUCKET, S3

pytest_plugins = ["support.s3_fixture"]

ACCOUNT = "devstoreaccount1"
# Not a secret: the key that every azurite has.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
AZURITE = Path(sys.prefix) / "interop-node" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
BIG = b"0123456789abcdef" * (PART // 16) + b"rest"


@dataclass(frozen=True, slots=True)
class Azurite:
    """The emulator of Azure's blobs, with the container ``models``."""

    port: int

    def put(self, path: str, body: bytes = b"", query: str = "", **headers: str) -> None:
        """PUT with the account's signature."""
        date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
        values = {"x-ms-date": date, "x-ms-version": version, **{k.replace("_", "-"): v for k, v in headers.items()}}
        named = "".join(f"{name}:{value}\n" for name, value in sorted(values.items()))
        resource = f"/{ACCOUNT}/{ACCOUNT}/{path}" + "".join(
            f"\n{part.replace('=', ':')}" for part in filter(None, [query])
        )
        size = str(len(body)) if body else ""
        kind = "application/octet-stream" if body else ""
        text = f"PUT\n\n\n{size}\n\n{kind}\n\n\n\n\n\n\n{named}{resource}"
        mac = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        signed = f"SharedKey {ACCOUNT}:{base64.b64encode(mac).decode()}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{ACCOUNT}/{path}" + (f"?{query}" if query else ""),
            data=body or None,
            method="PUT",
            headers={**values, "Authorization": signed, "Content-Length": str(len(body))}
            | ({"Content-Type": kind} if kind else {}),
        )
        urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture
def azurite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Azurite]:
    pytest.importorskip("obstore")
    main = Path(os.environ.get("NAIAD_AZURITE", AZURITE))
    node = shutil.which("node")
    if node is None or not main.exists():
        pytest.skip("azurite is not installed (scripts/test installs it)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [node, main, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", tmp_path / "azurite"]
    process = subprocess.Popen([*command, "--skipApiVersionCheck", "--silent"], stdout=subprocess.DEVNULL)
    try:
        _wait_listening(port, process)
        found = Azurite(port)
        found.put("models", query="restype=container")
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"http://127.0.0.1:{port}/{ACCOUNT}")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_KEY", KEY)
        yield found
    finally:
        process.kill()
        process.wait()


def _wait_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, "azurite does not listen"
            time.sleep(0.05)


def read_all(uri: str, mirror: Path) -> dict[str, dict[str, bytes]]:
    """The files of every model, obtained by a server of its own."""
    catalog = open_catalog([RemoteUri(uri)], [], str(mirror), 0)
    found = {}
    for name, model in catalog.outline(is_whole=True).remote.items():
        place = fetched(model).source.directory
        assert place is not None
        found[name] = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    catalog.close()
    return found


EXPECTED = {"one": {"config.pbtxt": b"x", "1/data": BIG}, "two": {"1/a b#%é": b"y"}}


@pytest.mark.slow
def test_azure(azurite: Azurite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, body in (("one/config.pbtxt", b"x"), ("one/1/data", BIG), ("two/1/a%20b%23%25%C3%A9", b"y")):
        azurite.put(f"models/repo/{name}", body, x_ms_blob_type="BlockBlob")
    uri = f"as://{ACCOUNT}/models/repo"
    assert read_all(uri, tmp_path / "mirror") == EXPECTED
    with pytest.raises(StoreError, match="no such bucket or container"):
        read_all(f"as://{ACCOUNT}/nosuch/repo", tmp_path / "mirror")
    monkeypatch.setenv("AZURE_STORAGE_KEY", base64.b64encode(b"wrong" * 8).decode())
    with pytest.raises(StoreError, match="those of AZURE_STORAGE_KEY are not right") as raised:
        read_all(uri, tmp_path / "mirror")
    assert not isinstance(raised.value, StoreUnreachableError)
    assert "wrong" not in str(raised.value)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:9/" + ACCOUNT)
    assert read_all(uri, tmp_path / "mirror") == EXPECTED, "the mirror has it"
    with pytest.raises(StoreUnreachableError, match="has nothing of this repository"):
        read_all(uri, tmp_path / "other")


@pytest.mark.slow
def test_google(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.decodes = True
    for name, body in (("one/config.pbtxt", b"x"), ("one/1/data", BIG), ("two/1/a b", b"y")):
        s3.put(f"repo/{name}", body)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"127.0.0.1:{s3.port}")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    uri = f"gs://{BUCKET}/repo"
    assert read_all(uri, tmp_path / "mirror") == {"one": EXPECTED["one"], "two": {"1/a b": b"y"}}
    s3.forget()
    assert read_all(uri, tmp_path / "mirror").keys() == {"one", "two"}
    assert s3.asked == []
    with pytest.raises(StoreError, match="no such bucket"):
        read_all("gs://nosuch/repo", tmp_path / "mirror")
