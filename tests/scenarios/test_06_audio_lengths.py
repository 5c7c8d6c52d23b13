"""Audio of 118,784 and 132,456 samples runs in one batch with padding, and the outputs are those of each alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tritonclient.grpc as client

from naiad.testing import RunningServer, serving
from support.served_models import tensor, write_model

LENGTHS = (118_784, 132_456)
# A filter of three samples that looks ahead: behind the end it meets zeros, padded or not.
GRAPH = """<ir_version: 8, opset_import: ["": 17]>
filter (float[b, n] AUDIO) => (float[b, n] FILTERED) {
  one = Constant <value_ints = [1]> ()
  channel = Unsqueeze (AUDIO, one)
  weights = Constant <value = float[1, 1, 3] {0.25, 0.5, 0.25}> ()
  smooth = Conv <pads = [1, 1]> (channel, weights)
  FILTERED = Squeeze (smooth, one)
}"""
CONFIG = f"""
platform: "onnxruntime_onnx" max_batch_size: 8 instance_group [ {{ kind: KIND_CPU count: 1 }} ]
dynamic_batching {{ preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 3000000 }}
input [ {tensor("AUDIO", "TYPE_FP32", "-1")} ] output [ {tensor("FILTERED", "TYPE_FP32", "-1")} ]
parameters {{ key: "batching.AUDIO" value {{ string_value: "pad(0)" }} }}
parameters {{ key: "batching.FILTERED" value {{ string_value: "unpad(AUDIO)" }} }}
"""


def ask(server: RunningServer, audio: np.ndarray) -> np.ndarray:
    with client.InferenceServerClient(server.grpc_url) as caller:
        given = client.InferInput("AUDIO", audio.shape, "FP32")
        given.set_data_from_numpy(audio)
        found: np.ndarray = caller.infer("filter", [given]).as_numpy("FILTERED")
        return found


def test_audio_of_two_lengths(tmp_path: Path) -> None:
    write_model(tmp_path / "models", "filter", CONFIG, graph=GRAPH)
    dice = np.random.default_rng(0)
    audio = [dice.standard_normal((1, length), np.float32) for length in LENGTHS * 2]
    with serving(tmp_path / "log", tmp_path / "models") as server, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda a: ask(server, a), audio))
        assert server.statistics("filter")["execution_count"] == 1, "all four ran together"
        for given, found in zip(audio, answers, strict=True):
            assert found.shape == given.shape
            expected = np.convolve(given[0], [0.25, 0.5, 0.25], "same")
            np.testing.assert_allclose(found[0], expected, atol=1e-5)
