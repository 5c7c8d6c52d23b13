"""What was made apart, used together on a real server: shared memory of clients, the response cache, forwarded
headers, traces, classification, and answers in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from naiad.testing import RunningServer, serving
from support.python_models import DOUBLES, REPEATS, write_python_model
from support.served_models import identity, write_model
from support.shared_regions import PROTOCOLS, Caller, calling, memory

CACHE = "response_cache { enable: true }"
GATED_REPEATS = (
    REPEATS.replace("sender = request", "waits = x.flat[0] == 2\n            sender = request")
    .replace(
        "sender.send(flags",
        "while waits and not os.path.exists(self.gate): time.sleep(0.01)\n            sender.send(flags",
    )
    .replace(
        "    def execute",
        """    def initialize(self, args):
        self.gate = os.path.join(args["model_repository"], "open")

    def execute""",
    )
)
IN_ORDER = "max_batch_size: 8 dynamic_batching { preserve_ordering: true }"


def write_repository(folder: Path) -> None:
    batching = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 1000 }"
    write_python_model(folder, "doubles", DOUBLES)
    write_python_model(folder, "doubles_cached", DOUBLES, f"{batching} {CACHE}")
    write_python_model(folder, "doubles_cached_in_order", DOUBLES, f"{IN_ORDER} {CACHE}")
    queue = "default_queue_policy { allow_timeout_override: true }"
    in_order = f"max_batch_size: 1 dynamic_batching {{ preserve_ordering: true {queue} }}"
    write_python_model(
        folder, "repeats_in_order", GATED_REPEATS, f"{in_order} model_transaction_policy {{ decoupled: true }}"
    )
    write_model(folder, "same", identity("TYPE_FP32", max_batch_size=8))
    write_model(folder, "same_slow", identity("TYPE_FP32", max_batch_size=8, delay_ms=1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("together")
    write_repository(folder / "models")
    arguments = [
        "--allow-client-shm=true",
        "--cache-config=local,size=16777216",
        "--http-header-forward-pattern=x-.*",
        "--grpc-header-forward-pattern=x-.*",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=level=TENSORS",
        "--trace-config=rate=1",
        f"--trace-config=triton,file={folder / 'trace.json'}",
    ]
    with serving(folder / "log", "--model-repository", folder / "models", *arguments) as running:
        yield running
        assert "Exception in callback" not in running.log
        assert "Traceback" not in running.log
        running.process.terminate()
        assert running.wait_exit() == 0
    traces = json.loads((folder / "trace.json").read_text())
    shapes = [t["tensor"]["shape"] for t in traces if "tensor" in t]
    assert "1,30000" in shapes


@pytest.fixture(params=PROTOCOLS)
def caller(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Caller]:
    with calling(server, request.param) as made:
        yield made


@pytest.mark.parametrize("headers", [None, {"x-tenant": "7"}], ids=["plain", "forwarded"])
@pytest.mark.parametrize("columns", [4, 30_000])
@pytest.mark.parametrize("model", ["doubles", "doubles_cached", "doubles_cached_in_order", "same", "same_slow"])
def test_outputs_in_regions(caller: Caller, model: str, columns: int, headers: Any) -> None:
    row = np.random.default_rng(columns).random((1, columns), np.float32)
    expected = row if model.startswith("same") else 2 * row
    names = ("INPUT0", "OUTPUT0") if model.startswith("same") else ("X", "Y")
    with memory(row.nbytes) as given, memory(row.nbytes) as wanted:
        given.put(row)
        caller.register("in", given)
        caller.register("out", wanted)
        for _ in range(3):
            wanted.put(np.zeros_like(row))
            inputs = [caller.input(names[0], "FP32", [1, columns], "in", row.nbytes)]
            outputs = [caller.output(names[1], "out", row.nbytes)]
            caller.client.infer(model, inputs, outputs=outputs, headers=dict(headers or {}), request_id="a")
            np.testing.assert_array_equal(wanted.get(np.float32, [1, columns]), expected)
        # What is kept is what any caller gets, wherever he wants it.
        plain = caller.library.InferInput(names[0], [1, columns], "FP32")
        plain.set_data_from_numpy(row)
        np.testing.assert_array_equal(
            caller.client.infer(model, [plain], headers=dict(headers or {})).as_numpy(names[1]), expected
        )
        caller.client.unregister_system_shared_memory()


def test_a_decoupled_model_that_keeps_the_order_tells_of_a_request_that_waited_too_long(server: RunningServer) -> None:
    gate = server.log_file.parent / "models" / "repeats_in_order" / "open"
    answers: SimpleQueue[Any] = SimpleQueue()
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        given = tritonclient.grpc.InferInput("X", [1, 1], "FP32")

        def ask(times: float, **more: Any) -> None:
            given.set_data_from_numpy(np.array([[times]], np.float32))
            client.async_stream_infer("repeats_in_order", [given], **more)

        ask(1)
        assert answers.get(timeout=20)[1] is None
        ask(2)
        for _ in range(2):
            assert answers.get(timeout=20)[1] is None
        ask(1, timeout=10_000)
        _, error = answers.get(timeout=10)
        gate.touch()
        assert "Request timeout expired" in str(error)
        client.stop_stream()
