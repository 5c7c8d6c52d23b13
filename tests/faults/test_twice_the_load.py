"""Twice as many requests as a model can serve, for seconds: each is answered, as many as possible with a result."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.testing import RunningServer, serving, wait_until
from support.overload_server import figures, held, inference, wait_empty
from support.served_models import identity, numbers, write_model

MEGABYTE = 1 << 20
DELAY_MS = 5
ROOM = 40
SECONDS = 6.0
CONNECTIONS = 4
ANSWER_S = 30.0
# Of each connection over HTTP, and as many again over gRPC: together twice what the model can do.
PERIOD_S = 2 * CONNECTIONS * DELAY_MS / 1000 / 2


class HttpSide(threading.Thread):
    """Sends requests on one connection at its own pace, whatever comes back; counts the answers by status."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__()
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self._peer = server.connect()
        self._peer.settimeout(ANSWER_S)
        self._reader = threading.Thread(target=self._read)

    def run(self) -> None:
        request = inference("slow", range(50))
        self._reader.start()
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            self._peer.sendall(request)
            self.sent += 1
            time.sleep(max(0.0, begun + self.sent * PERIOD_S - time.monotonic()))
        # Not before the last answer: who ends its side gives up what waits.
        wait_until(lambda: sum(self.statuses.values()) == self.sent, ANSWER_S, "all are answered")
        self._peer.shutdown(2)
        self._reader.join(ANSWER_S)
        self._peer.close()

    def _read(self) -> None:
        with self._peer.makefile("rb") as answers:
            while line := answers.readline():
                self.statuses[int(line.split()[1])] += 1
                length = 0
                while (field := answers.readline()) != b"\r\n":
                    name, _, value = field.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                answers.read(length)


class GrpcSide(threading.Thread):
    """The same over gRPC."""

    def __init__(self, stub: Any) -> None:
        super().__init__()
        self.sent = 0
        self.statuses: Counter[int] = Counter()
        self._stub = stub

    def run(self) -> None:
        request = service_pb2.ModelInferRequest(
            model_name="slow", raw_input_contents=[np.arange(50, dtype=np.int32).tobytes()]
        )
        request.inputs.add(name="INPUT0", datatype="INT32").shape.append(50)
        calls = []
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            calls.append(self._stub.ModelInfer.future(request, timeout=ANSWER_S))
            self.sent += 1
            time.sleep(max(0.0, begun + self.sent * PERIOD_S - time.monotonic()))
        for call in calls:
            code = call.code()
            assert code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE), call.details()
            self.statuses[200 if code is grpc.StatusCode.OK else 503] += 1


# The throughput is measured.
@pytest.mark.serial
@pytest.mark.slow
def test_twice_the_load(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "slow", identity(delay_ms=DELAY_MS))
    write_model(tmp_path / "models", "other", identity(delay_ms=1))
    options = ("--max-in-flight-requests", ROOM + 10, "--max-in-flight-requests-per-model", ROOM)
    with (
        serving(tmp_path / "log", tmp_path / "models", *options) as server,
        grpc.insecure_channel(server.grpc_url) as ch,
    ):
        assert server.infer("slow", numbers([1])).status == 200
        memory = server.memory_bytes()
        stub = service_pb2_grpc.GRPCInferenceServiceStub(ch)
        sides: list[HttpSide | GrpcSide] = [HttpSide(server) for _ in range(CONNECTIONS)]
        sides += [GrpcSide(stub) for _ in range(CONNECTIONS)]
        begun = time.monotonic()
        for side in sides:
            side.start()
        most, others = 0.0, 0
        while any(side.is_alive() for side in sides):
            most = max(most, held(server)[0])
            others += server.infer("other", numbers([1])).status == 200
            assert server.get("/v2/health/ready").status == 200
            assert server.memory_bytes() - memory < 64 * MEGABYTE
            assert time.monotonic() - begun < SECONDS + 2 * ANSWER_S
            time.sleep(0.05)
        elapsed = time.monotonic() - begun
        statuses: Counter[int] = sum((side.statuses for side in sides), Counter())
        sent = sum(side.sent for side in sides)
        assert set(statuses) == {200, 503}, statuses
        # Every request has an answer of its own.
        assert sum(statuses.values()) == sent
        assert all(sum(side.statuses.values()) == side.sent for side in sides)
        # The model was busy all the time: half of what it can do is a wide margin for a machine with other work.
        assert statuses[200] > 0.5 * min(SECONDS, elapsed) / (DELAY_MS / 1000), (statuses, elapsed)
        assert most <= ROOM + 1
        assert others > 10
        wait_empty(server)
        found = server.statistics("slow")["inference_stats"]
        assert found["success"]["count"] == statuses[200] + 1
        assert found["fail"]["count"] == statuses[503]
        assert figures(server)['naiad_requests_refused{bound="model"}'] == statuses[503]
        wait_until(lambda: server.infer("slow", numbers([1])).status == 200, ANSWER_S, "requests are served again")
