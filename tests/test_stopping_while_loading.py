"""SIGTERM while some models still load: those that are ready answer what they took."""

from __future__ import annotations

from pathlib import Path

from naiad.testing import read_response, request_bytes, start_server
from support.served_models import identity, numbers, write_model


def test_requests_in_flight_are_answered(tmp_path: Path) -> None:
    late = 'parameters { key: "creation_delay_sec" value { string_value: "30" } }'
    write_model(tmp_path / "models", "late", identity(extra=late))
    write_model(tmp_path / "models", "slow", identity(delay_ms=700))
    server = start_server(tmp_path / "log", tmp_path / "models")
    try:
        server.wait_listening()
        server.wait_for("successfully loaded 'slow'")
        with server.connect() as peer:
            body = repr(numbers([5])).replace("'", '"').encode()
            peer.sendall(request_bytes("POST", "/v2/models/slow/infer", body))
            # Sent later, on a later connection: once it is answered, the one before has been read.
            assert server.get("/v2/health/live").status == 200
            server.signal()
            assert read_response(peer).json()["outputs"][0]["data"] == [5]
        assert server.wait_exit(10) == 0
        assert "Traceback" not in server.log
    finally:
        server.kill()
