"""TorchServe: files as forms or as plain bodies, against the real server where it is installed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from naiad.perf.results import Window
from naiad.perf.target.protocol import TargetError
from naiad.perf.target.services.torchserve import multipart_of
from support.perf_runs import measure, measure_level, run_command
from support.torchserve_server import torchserve

CONTENT = b"\x00\xff\xfenaiad-perf-0\r\n--naiad-perf-1"
"""Bytes that are no text, with what begins like a boundary in them."""
JSON = "Content-Type: application/json"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of input data, which names another one in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("content").write_bytes(CONTENT)
    Path("text.json").write_text('{"a": 1}')
    for name, file in (("data.json", "content"), ("text_data.json", "text.json")):
        Path(name).write_text(json.dumps({"data": [{"TORCHSERVE_INPUT": [file]}]}))
    return "data.json"


def words_of(address: str, data: str, *words: object) -> tuple[object, ...]:
    return ("-m", "echo", "--service-kind", "torchserve", "-u", address, "--input-data", data, *words)


def window_of(address: str, data: str, *words: object) -> Window:
    return measure_level(*words_of(address, data, "--request-count", 5, *words)).merged


@contextmanager
def noting_server() -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """A server that takes anything, and its list of paths, content types and bodies."""
    seen: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Content-Type"], body))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def test_a_file_is_the_field_of_a_form(data: str) -> None:
    with noting_server() as (address, seen):
        window = window_of(address, data)
    assert (window.requests, window.errors) == (5, {})
    ((path, content_type, body),) = set(seen)
    assert path == "/predictions/echo"
    # As Python's own parser of mail reads it.
    form = BytesParser().parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    (field,) = form.get_payload()
    assert field["Content-Disposition"] == 'form-data; name="data"'
    assert field.get_payload(decode=True) == CONTENT


def test_the_boundary_of_a_form_is_not_in_it() -> None:
    form, content_type = multipart_of(b"naiad-perf-0 naiad-perf-1")
    assert content_type == "multipart/form-data; boundary=naiad-perf-2"
    assert form.startswith(b"--naiad-perf-2\r\n")


def test_a_content_type_makes_plain_bodies(data: str) -> None:
    with noting_server() as (address, seen):
        window_of(address, "text_data.json", "-H", JSON, "-x", "2.0")
    assert set(seen) == {("/predictions/echo/2.0", "application/json", b'{"a": 1}')}


def test_a_file_that_is_not_there(data: str) -> None:
    Path("content").unlink()
    match = "cannot read 'content', the TORCHSERVE_INPUT of step 0 of --input-data: No such file"
    with noting_server() as (address, _), pytest.raises(TargetError, match=match):
        measure(*words_of(address, data))


@pytest.mark.slow
def test_the_real_server(data: str, tmp_path: Path) -> None:
    (tmp_path / "torchserve").mkdir()
    with torchserve(tmp_path / "torchserve") as address:
        for words in ((), ("-H", "Content-Type: application/octet-stream"), ("-x", "1.0", "--concurrency-range", 3)):
            window = window_of(address, data, *words)
            assert (window.requests, window.errors) == (5, {})
        code, out, errors = run_command(*words_of(address, data, "--request-rate-range", 20, "--request-count", 40))
        assert (code, errors) == (0, "")
        assert "Service Kind: TORCHSERVE" in out
        refusals = {("-m", "nope"): "Model not found: nope", ("-x", "7"): "Model version: 7 does not exist"}
        for wrong, match in refusals.items():
            with pytest.raises(TargetError, match=f"HTTP 404: {match}"):
                measure(*words_of(address, data, *wrong))
