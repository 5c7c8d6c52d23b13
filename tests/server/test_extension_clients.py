"""What the official clients get from the extensions of inference: compression and classes."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.testing import RunningServer, serving
from support.served_models import identity, write_model
from support.triton_inputs import input_of

CODINGS = (None, "gzip", "deflate")
ROUNDS = 3
MEGABYTES = 60
LABELS = "cat\ndog\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("extensions")
    config = identity("TYPE_FP32", "-1", max_batch_size=4)
    labelled = config.replace('name: "OUTPUT0"', 'name: "OUTPUT0" label_filename: "labels.txt"')
    (write_model(folder / "models", "labelled", labelled) / "labels.txt").write_text(LABELS)
    write_model(folder / "models", "plain", identity("TYPE_UINT8", "-1"))
    with serving(folder / "log", folder / "models") as running:
        yield running
        assert "Exception in callback" not in running.log


@pytest.mark.parametrize("request_coding", CODINGS)
@pytest.mark.parametrize("response_coding", CODINGS)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("size", [1, 50_000])
def test_compression(
    server: RunningServer, request_coding: str | None, response_coding: str | None, binary: bool, size: int
) -> None:
    module = tritonclient.http
    array = np.random.default_rng(size).random((2, size), np.float32)
    wanted = [module.InferRequestedOutput("OUTPUT0", binary_data=binary)]
    with module.InferenceServerClient(server.url) as client:
        answer = client.infer(
            "labelled",
            [input_of(module, "INPUT0", array, "FP32", binary_data=binary)],
            outputs=wanted,
            request_compression_algorithm=request_coding,
            response_compression_algorithm=response_coding,
        )
    assert np.array_equal(answer.as_numpy("OUTPUT0"), array)


@pytest.mark.parametrize("binary", [True, False])
def test_classes_over_http(server: RunningServer, binary: bool) -> None:
    module = tritonclient.http
    wanted = [module.InferRequestedOutput("OUTPUT0", binary_data=binary, class_count=2)]
    array = np.array([[1, 3, 2], [0.5, 0, -1]], np.float32)
    with module.InferenceServerClient(server.url) as client:
        answer = client.infer("labelled", [input_of(module, "INPUT0", array, "FP32")], outputs=wanted).as_numpy(
            "OUTPUT0"
        )
    expected = [["3.000000:1:dog", "2.000000:2"], ["0.500000:0:cat", "0.000000:1:dog"]]
    assert [[text.decode() if binary else text for text in row] for row in answer] == expected


def test_classes_over_grpc(server: RunningServer) -> None:
    module = tritonclient.grpc
    wanted = [module.InferRequestedOutput("OUTPUT0", class_count=1)]
    array = np.array([[1, 3, 2], [0.5, 0, -1]], np.float32)
    with module.InferenceServerClient(server.grpc_url) as client:
        answer = client.infer("labelled", [input_of(module, "INPUT0", array, "FP32")], outputs=wanted).as_numpy(
            "OUTPUT0"
        )
    assert answer.tolist() == [[b"3.000000:1:dog"], [b"0.500000:0:cat"]]


# The waits of small requests are measured.
@pytest.mark.slow
@pytest.mark.serial
def test_large_compressed_bodies_do_not_hold_others_up(server: RunningServer) -> None:
    module = tritonclient.http
    size = MEGABYTES << 20
    described = {"name": "INPUT0", "shape": [size], "datatype": "UINT8", "parameters": {"binary_data_size": size}}
    wanted = {"name": "OUTPUT0", "parameters": {"classification": 1}}
    text = json.dumps({"inputs": [described], "outputs": [wanted]}).encode()
    large = gzip.compress(text + bytes(size), 1)
    headers = [("Content-Encoding", "gzip"), ("Inference-Header-Content-Length", str(len(text)))]
    small = input_of(module, "INPUT0", np.zeros((1, 8), np.float32), "FP32")
    done = threading.Event()

    def send_large() -> None:
        for _ in range(3):
            assert server.request("POST", "/v2/models/plain/infer", large, headers).json()["outputs"][0]["data"] == [
                "0:0"
            ]
        done.set()

    def waits() -> list[float]:
        done.clear()
        thread = threading.Thread(target=send_large)
        found: list[float] = []
        with module.InferenceServerClient(server.url) as client:
            client.infer("labelled", [small])
            thread.start()
            while not done.is_set() and thread.is_alive():
                begun = time.monotonic()
                client.infer("labelled", [small])
                found.append(time.monotonic() - begun)
            thread.join(60)
        assert done.is_set()
        return found

    # A round that another process of this machine held up does not count.
    for _ in range(ROUNDS):
        waited = waits()
        print(f"others waited {1000 * np.quantile(waited, 0.99):.1f} ms (p99), {1000 * max(waited):.1f} ms at most")
        if np.quantile(waited, 0.99) < 0.1:
            break
    # On the loop it would be some 0.3 s.
    assert np.quantile(waited, 0.99) < 0.1
