"""Real networks with random weights: what the server answers is what onnxruntime answers when called directly."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
import tritonclient.http as triton

from support.networks import demo_models, images, load_script, session, with_random_weights

NAMES = [network.name for network in demo_models.NETWORKS]
CALLERS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every network with a free batch dimension and weights of its own; the configuration asks for batches."""
    folder = tmp_path_factory.mktemp("networks") / "models"
    for seed, network in enumerate(demo_models.NETWORKS):
        model = with_random_weights(demo_models.with_free_batch(network.load()), seed)
        (folder / network.name / "1").mkdir(parents=True)
        (folder / network.name / "config.pbtxt").write_text(demo_models.BATCH_CONFIG)
        onnx.save(model, folder / network.name / "1" / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def url(repository: Path) -> Iterator[str]:
    server = load_script("demo_server").DemoServer(repository, 0, 0, ready_s=120, show_log=False)
    yield server.url
    assert server.stop() == 0


def ask(url: str, name: str, image: np.ndarray) -> np.ndarray:
    """The only output for one image, asked with the official client over a connection of its own."""
    with triton.InferenceServerClient(url, network_timeout=60) as client:
        metadata = client.get_model_metadata(name)
        tensor = triton.InferInput(metadata["inputs"][0]["name"], list(image.shape), "FP32")
        tensor.set_data_from_numpy(image)
        answer = client.infer(name, [tensor])
        return answer.as_numpy(metadata["outputs"][0]["name"])


@pytest.mark.parametrize("name", NAMES)
def test_every_caller_gets_the_answer_to_its_own_image(repository: Path, url: str, name: str) -> None:
    asked = images(CALLERS, seed=5)
    with ThreadPoolExecutor(CALLERS) as callers:
        answers = list(callers.map(lambda i: ask(url, name, asked[i : i + 1]), range(CALLERS)))
    direct = session(repository / name / "1" / "model.onnx")
    expected = direct.run(None, {direct.get_inputs()[0].name: asked})[0]
    assert np.abs(expected[0] - expected[1]).max() > 1e-4
    np.testing.assert_allclose(np.concatenate(answers), expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_with_a_batch_of_its_own(repository: Path, url: str, name: str) -> None:
    asked = images(3, seed=6)
    direct = session(repository / name / "1" / "model.onnx")
    expected = direct.run(None, {direct.get_inputs()[0].name: asked})[0]
    np.testing.assert_allclose(ask(url, name, asked), expected, rtol=1e-3, atol=1e-6)
