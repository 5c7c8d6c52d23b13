"""The limits of a process: a server takes what it may have, and says when that is little."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from pathlib import Path

from naiad.testing import read_response, request_bytes, serving

FEW, ALLOWED, CALLERS = 64, 400, 200


def few_open_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, ALLOWED))


def test_more_connections_than_the_soft_limit_of_open_files(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with ExitStack() as closing:
        server = closing.enter_context(serving(tmp_path / "log", tmp_path / "models", preexec_fn=few_open_files))
        assert f"only {ALLOWED} files may be open" in server.log
        peers = [closing.enter_context(server.connect()) for _ in range(CALLERS)]
        for peer in peers:
            peer.sendall(request_bytes("GET", "/v2/health/ready", None))
        assert {read_response(peer).status for peer in peers} == {200}
