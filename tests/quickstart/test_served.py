"""The repository of ``naiad quickstart`` in a real server: every model answers the field's client."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc
import tritonclient.http

from naiad.quickstart.catalog import MODELS, select
from naiad.quickstart.image import sample_image
from naiad.quickstart.write import write_repository
from naiad.testing.server import RunningServer
from support.document_blocks import Terminal, blocks
from support.large_repositories import serving_large

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHOSEN = select()
NAMES = [model.name for model in CHOSEN.models]
WITH_REQUEST = [model.name for model in CHOSEN.models if model.request]
COUNT = np.arange(16)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quickstart") / "models"
    write_repository(folder, CHOSEN.models)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    with serving_large(repository.parent / "server.log", "--model-repository", repository) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    return tritonclient.http.InferenceServerClient(server.url, network_timeout=120, connection_timeout=120)


def needed(*names: str) -> None:
    """Skip where a model is left out."""
    for name in names:
        if name in CHOSEN.left_out:
            pytest.skip(f"{name} is left out: {CHOSEN.left_out[name]}")


def test_all_models_are_there_where_all_packages_are() -> None:
    assert {*NAMES, *CHOSEN.left_out} == set(MODELS)
    of_tutorials = (
        "simple simple_string simple_identity simple_sequence densenet_onnx inception_onnx inception_graphdef"
    )
    assert {*of_tutorials.split(), "linear_model", "add_sub"} <= set(MODELS)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_ready_as_it_is_written(name: str, repository: Path, client: Any) -> None:
    assert client.is_model_ready(name)
    config = client.get_model_config(name)
    written = (repository / name / "config.pbtxt").read_text()
    assert config["name"] == name and f'name: "{name}"' in written
    assert all(f'name: "{tensor["name"]}"' in written for tensor in (*config["input"], *config["output"]))


EXPECTED: dict[str, dict[str, list[Any]]] = {
    "simple": {"OUTPUT0": list(COUNT + 1), "OUTPUT1": list(COUNT - 1)},
    "simple_int8": {"OUTPUT0": list(COUNT + 1), "OUTPUT1": list(COUNT - 1)},
    "simple_string": {"OUTPUT0": [str(n) for n in COUNT + 1], "OUTPUT1": [str(n) for n in COUNT - 1]},
    "simple_identity": {"OUTPUT0": ["hello", "world"]},
    "simple_sequence": {"OUTPUT": [6]},
    "simple_dyna_sequence": {"OUTPUT": [7]},
    "simple_string_dyna_sequence": {"OUTPUT": [1007]},
    "add_sub": {"OUTPUT0": [1.5, 2.5, 3.5, 4.5], "OUTPUT1": [0.5, 1.5, 2.5, 3.5]},
    "custom_identity_int32": {"OUTPUT0": [1, 2, 3, 4]},
}


@pytest.mark.parametrize("name", WITH_REQUEST)
def test_the_request_of_a_model_is_answered(name: str, repository: Path, server: RunningServer) -> None:
    answer = server.infer(name, json.loads((repository / name / "request.json").read_bytes()))
    assert answer.status == 200, answer.body
    outputs = {output["name"]: output["data"] for output in answer.json()["outputs"]}
    assert name == "linear_model" or outputs == EXPECTED[name]


# PyTorch recommends torch.export, but the tutorials have TorchScript.
@pytest.mark.filterwarnings("ignore:.*torch.jit.load:DeprecationWarning")
def test_linear_model_is_its_thousand_layers(repository: Path, client: Any) -> None:
    needed("linear_model")
    import torch

    rows = np.array([[-2.0], [0.5], [3.0]], np.float32)
    given = tritonclient.http.InferInput("INPUT", [3, 1], "FP32").set_data_from_numpy(rows)
    found = client.infer("linear_model", [given]).as_numpy("OUTPUT")
    network = torch.jit.load(repository / "linear_model" / "1" / "model.pt")
    assert len([name for name, _ in network.named_parameters() if name.endswith("weight")]) == 1000
    weights = [float(p.detach()) for _, p in network.named_parameters()]
    assert np.isfinite(found).all() and len(set(weights)) > 1500
    expected = rows
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        expected = expected * np.float32(weight) + np.float32(bias)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_repeat_int32_responds_for_each_element(server: RunningServer) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    inputs = []
    for name, datatype, values in (
        ("IN", np.int32, [4, 2, 0]),
        ("DELAY", np.uint32, [1, 1, 1]),
        ("WAIT", np.uint32, [1]),
    ):
        wire = "INT32" if datatype is np.int32 else "UINT32"
        inputs.append(tritonclient.grpc.InferInput(name, [len(values)], wire))
        inputs[-1].set_data_from_numpy(np.array(values, datatype))
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("repeat_int32", inputs)
        found = [answers.get(timeout=30) for _ in range(3)]
    assert [(int(result.as_numpy("OUT")[0]), error) for result, error in found] == [(4, None), (2, None), (0, None)]


def image(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("name", "given", "shape", "made", "classes"),
    [
        ("densenet_onnx", "data_0", (3, 224, 224), "fc6_1", 1000),
        ("inception_onnx", "input:0", (299, 299, 3), "InceptionV3/Predictions/Softmax:0", 1001),
    ],
)
def test_a_network_answers_what_onnxruntime_answers(
    name: str, given: str, shape: tuple[int, ...], made: str, classes: int, repository: Path, client: Any
) -> None:
    needed(name)
    tensor = tritonclient.http.InferInput(given, shape, "FP32")
    wanted = [tritonclient.http.InferRequestedOutput(made)]
    session = onnxruntime.InferenceSession(repository / name / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    found = []
    for seed in (1, 2):
        values = image(shape, seed)
        answer = client.infer(name, [tensor.set_data_from_numpy(values)], outputs=wanted).as_numpy(made)
        assert answer.shape == (classes,) and np.isfinite(answer).all()
        (expected,) = session.run(None, {given: values[None]})
        np.testing.assert_allclose(answer, expected.ravel(), rtol=1e-3, atol=1e-5)
        found.append(answer)
    assert not np.allclose(found[0], found[1], rtol=1e-2, atol=0), "the answer should depend on the image"
    best = client.infer(name, [tensor], outputs=[tritonclient.http.InferRequestedOutput(made, class_count=1)])
    value, index, label = best.as_numpy(made)[0].decode().split(":")
    place = int(np.argmax(found[1]))
    assert (int(index), label) == (place, f"CLASS {place}")
    assert float(value) == pytest.approx(float(found[1].max()), rel=1e-4)


def test_inception_graphdef_takes_batches(client: Any) -> None:
    needed("inception_graphdef")
    images = np.concatenate([image((1, 299, 299, 3), seed) for seed in (1, 2)])
    name = "InceptionV3/Predictions/Softmax"

    def classified(rows: np.ndarray) -> np.ndarray:
        tensor = tritonclient.http.InferInput("input", rows.shape, "FP32").set_data_from_numpy(rows)
        return client.infer("inception_graphdef", [tensor]).as_numpy(name)

    both = classified(images)
    assert both.shape == (2, 1001)
    np.testing.assert_allclose(both.sum(axis=1), 1, rtol=1e-4)
    assert not np.allclose(both[0], both[1], rtol=1e-2, atol=0)
    np.testing.assert_allclose(both[:1], classified(images[:1]), rtol=1e-3, atol=1e-6)


def test_the_ensembles_take_an_image_file(client: Any) -> None:
    needed("ensemble_python_resnet50")
    file = np.frombuffer(sample_image(), np.uint8)[None]
    tensor = tritonclient.http.InferInput("INPUT", file.shape, "UINT8").set_data_from_numpy(file)
    scores = client.infer("ensemble_python_resnet50", [tensor]).as_numpy("OUTPUT")
    assert scores.shape == (1, 1000) and np.isfinite(scores).all() and scores.std() > 0.1
    needed("preprocess_inception_ensemble")
    files = np.array([[sample_image()], [sample_image()]], object)
    tensor = tritonclient.http.InferInput("INPUT", [2, 1], "BYTES").set_data_from_numpy(files)
    wanted = [tritonclient.http.InferRequestedOutput("CLASSIFICATION", class_count=2)]
    rows = client.infer("preprocess_inception_ensemble", [tensor], outputs=wanted).as_numpy("CLASSIFICATION")
    assert rows.shape == (2, 2) and list(rows[0]) == list(rows[1])
    assert all(label.decode().split(":")[2].startswith("CLASS ") for label in rows[0])


def test_perf_reads_the_image_of_the_other_ensemble(repository: Path, server: RunningServer) -> None:
    needed("preprocess_inception_ensemble")
    file = repository / "preprocess_inception_ensemble" / "input.json"
    options = ("-u", server.url, "--input-data", str(file), "--request-count=3")
    command = [sys.executable, "-m", "naiad", "perf", "-m", "preprocess_inception_ensemble", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Concurrency: 1" in done.stdout, done.stdout + done.stderr


def test_what_is_no_image_is_the_callers_error(client: Any) -> None:
    needed("ensemble_python_resnet50")
    file = np.frombuffer(b"no image at all", np.uint8)[None]
    tensor = tritonclient.http.InferInput("INPUT", file.shape, "UINT8").set_data_from_numpy(file)
    said = "Pillow can read: its 15 bytes are in no format that Pillow knows"
    with pytest.raises(tritonclient.utils.InferenceServerException, match=said):
        client.infer("ensemble_python_resnet50", [tensor])


def test_the_commands_of_the_readme_work(tmp_path: Path) -> None:
    """From the folder above, as it is after ``naiad quickstart models``."""
    needed("simple", "ensemble_python_resnet50")
    folder = tmp_path / "clone"
    write_repository(folder / "models", select(["simple", "ensemble_python_resnet50"]).models)
    terminal = Terminal(folder)
    try:
        found = [terminal.run(block) for block in blocks(folder / "models" / "README.md") if block.language == "bash"]
    finally:
        terminal.stop()
    served, answered, classified, measured, images = found
    assert "Concurrency: 1" in images
    assert (served, classified) == ("", "200\n") and '"OUTPUT0"' in answered and "Concurrency: 4" in measured
