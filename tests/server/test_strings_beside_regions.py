"""Requests with a tensor in a region of the client and very many strings in the message: what is remembered of the
region lets nothing by that concerns the strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import channel, stub
from naiad.tensor.packed_bytes import AT_ONCE_STRINGS
from naiad.testing import RunningServer, serving
from server.test_large_strings import packed
from support.grpc_peers import CALL_S, calling
from support.python_models import HEAD
from support.served_models import tensor, write_model
from support.shared_regions import memory

MANY = 3 * AT_ONCE_STRINGS
NUMBERS = np.arange(1 << 17, dtype=np.float32)
REGION = "numbers"
COUNTS = """
class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            s = pb_utils.get_input_tensor_by_name(request, "S").as_numpy()
            y = np.array([x.sum(dtype=np.float64), sum(map(len, s))], np.float64)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", y)]))
        return answers
"""
CONFIG = f"""backend: "python" input [ {tensor("X", "TYPE_FP32", "-1")}, {tensor("S", "TYPE_STRING", "-1")} ]
output [ {tensor("Y", "TYPE_FP64", "2")} ] instance_group [ {{ kind: KIND_CPU }} ]"""
GOOD = packed(["ab"] * (MANY - 1) + ["abc"])
# As long as the good one, with a string that runs past the end.
BAD = GOOD[:-7] + (200).to_bytes(4, "little") + GOOD[-3:]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("beside")
    (write_model(folder / "models", "counts", CONFIG) / "1" / "model.py").write_text(HEAD + COUNTS)
    with serving(folder / "log", folder / "models", "--allow-client-shm=true") as running:
        with memory(NUMBERS.nbytes) as region, calling(running.grpc_url) as client:
            region.put(NUMBERS)
            client.register_system_shared_memory(REGION, region.key, region.size)
            yield running
        assert "Traceback" not in running.log


def over_http(server: RunningServer, raw: bytes) -> tuple[bool, str]:
    """Whether the request was served, and what came."""
    place = {"shared_memory_region": REGION, "shared_memory_byte_size": NUMBERS.nbytes}
    inputs = [
        {"name": "X", "datatype": "FP32", "shape": [NUMBERS.size], "parameters": place},
        {"name": "S", "datatype": "BYTES", "shape": [MANY], "parameters": {"binary_data_size": len(raw)}},
    ]
    head = json.dumps({"inputs": inputs}).encode()
    answer = server.request(
        "POST", "/v2/models/counts/infer", head + raw, (("Inference-Header-Content-Length", str(len(head))),)
    )
    if answer.status != 200:
        return False, answer.error
    return True, str(answer.json()["outputs"][0]["data"])


def over_grpc(server: RunningServer, raw: bytes) -> tuple[bool, str]:
    request = pb.ModelInferRequest(model_name="counts", raw_input_contents=[raw])
    given = request.inputs.add(name="X", datatype="FP32", shape=[NUMBERS.size])
    given.parameters["shared_memory_region"].string_param = REGION
    given.parameters["shared_memory_byte_size"].int64_param = NUMBERS.nbytes
    request.inputs.add(name="S", datatype="BYTES", shape=[MANY])
    with channel(server) as opened:
        try:
            answer = stub(opened).ModelInfer(request, timeout=CALL_S)
        except grpc.RpcError as error:
            return False, error.details()
    return True, str(np.frombuffer(answer.raw_output_contents[0], np.float64).tolist())


@pytest.mark.parametrize("ask", [over_http, over_grpc])
def test_strings_are_checked_also_when_the_region_is_remembered(
    server: RunningServer, ask: Callable[[RunningServer, bytes], tuple[bool, str]]
) -> None:
    expected = str([float(NUMBERS.sum(dtype=np.float64)), 2.0 * (MANY - 1) + 3])
    for _ in range(4):
        assert ask(server, GOOD) == (True, expected)
        is_served, text = ask(server, BAD)
        assert not is_served
        assert "incomplete string data for inference input 'S' for model 'counts'" in text
