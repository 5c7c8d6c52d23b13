"""Batches of unequal requests in a whole server, over HTTP and gRPC, with real ONNX and TorchScript models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

pytest.importorskip("torch")
import torch

from naiad.testing import RunningServer, run_to_end, serving
from support.config_texts import parameter
from support.served_models import LOOK_UP, tensor, write_model
from support.torch_models import save

Array = np.ndarray[Any, Any]
CALLERS = 4
# So many callers fill a batch; the wait is what they may need to come together.
BATCHING = f"""max_batch_size: 16
dynamic_batching {{ preferred_batch_size: [ {CALLERS} ] max_queue_delay_microseconds: 3000000 }}
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
"""
RAGGED_INPUT = f"input [ {tensor('X', 'TYPE_FP32', '-1', 'allow_ragged_batch: true')} ]"
Y = tensor("Y", "TYPE_FP32", "-1")
# Y is X doubled; C tells each request the elements of all before it and of itself.
RAGGED = (
    BATCHING
    + f"""
{RAGGED_INPUT}
output [ {Y}, {tensor("C", "TYPE_INT32", "1")} ]
batch_input [ {{ kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "I" data_type: TYPE_INT32 source_input: "X" }} ]
batch_output [ {{ kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "Y" source_input: "X" }} ]
"""
)
RAGGED_GRAPH = """<ir_version: 8, opset_import: ["": 17]>
ragged (float[n] X, int32[b] I) => (float[n] Y, int32[b, 1] C) {
  two = Constant <value_floats = [2.0]> ()
  Y = Mul (X, two)
  axes = Constant <value_ints = [1]> ()
  C = Unsqueeze (I, axes)
}"""


# Y is X and one; S is the sum of what the mask lets through. The padding is large, so that it would be seen.
PADDED = (
    BATCHING
    + f"""
input [ {tensor("X", "TYPE_FP32", "-1")} ]
output [ {tensor("Y", "TYPE_FP32", "-1")}, {tensor("S", "TYPE_FP32", "1")} ]
"""
    + parameter("batching.X", "pad(1000, to=multiple(8), mask=M)")
    + parameter("batching.Y", "unpad(X)")
)
PADDED_GRAPH = """<ir_version: 8, opset_import: ["": 17]>
padded (float[b, n] X, bool[b, n] M) => (float[b, n] Y, float[b, 1] S) {
  one = Constant <value_floats = [1.0]> ()
  Y = Add (X, one)
  kept = Cast <to = 1> (M)
  own = Mul (X, kept)
  axes = Constant <value_ints = [1]> ()
  S = ReduceSum (own, axes)
}"""
PROCESS = parameter("execution", "process")
POISONED = 'platform: "onnxruntime_onnx" ' + BATCHING
TEACHER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(r, "X").as_numpy() for r in requests]
        if any((x < 0).any() for x in found):
            raise ValueError("negative")
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor("Y", x * 2), pb_utils.Tensor("C", np.full((len(x), 1), len(requests), np.int32))
            ])
            for x in found
        ]
"""
# At most two requests in a batch, and a request that asks for it makes the rule fail.
STRATEGY = """
class BatchStrategy:
    def batch_initialize(self):
        return []

    def include_request(self, request, batch):
        if request.parameters.get("fail"):
            raise ValueError("told to fail")
        batch.append(request.id)
        return len(batch) <= 2
"""
PYTHON = 'backend: "python"\n' + RAGGED


class Ragged(torch.nn.Module):
    def forward(self, X: torch.Tensor, I: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: E741
        return X * 2, I.unsqueeze(1)


class Padded(torch.nn.Module):
    def forward(self, X: torch.Tensor, M: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return X + 1, torch.where(M, X, 0.0).sum(1, keepdim=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("batching")
    models = folder / "models"
    onnx, torch_ = 'platform: "onnxruntime_onnx"\n', 'platform: "pytorch_libtorch"\n'
    for name, more in (("", ""), ("_process", PROCESS)):
        write_model(models, f"onnx_ragged{name}", onnx + RAGGED + more, graph=RAGGED_GRAPH)
        write_model(models, f"onnx_padded{name}", onnx + PADDED + more, graph=PADDED_GRAPH)
        for kind, config, module in (("ragged", RAGGED, Ragged()), ("padded", PADDED, Padded())):
            at = write_model(models, f"torch_{kind}{name}", torch_ + config + more)
            save(at / "1" / "model.pt", module)
    write_model(models, "identity_ragged", 'backend: "identity"\n' + RAGGED)
    write_model(models, "identity_alone", f'backend: "identity" {BATCHING} {RAGGED_INPUT} output [ {Y} ]')
    look_up = f"input [ {tensor('index', 'TYPE_INT64', '1')} ] output [ {tensor('value', 'TYPE_FP32', '1')} ]"
    write_model(models, "split", POISONED + look_up, graph=LOOK_UP)
    write_model(models, "split_process", POISONED + look_up + PROCESS, graph=LOOK_UP)
    write_model(models, "fail", POISONED + look_up + parameter("batch_error", "fail"), graph=LOOK_UP)
    at = write_model(models, "custom", onnx + RAGGED, graph=RAGGED_GRAPH)
    (at / "batchstrategy.py").write_text(STRATEGY)
    # Names that are close to "max_batch_bytes"; the first is that of the reference's example.
    own = parameter("MAX_BATCH_VOLUME_BYTES", "2") + parameter("MAX_BATCH_BYTE", "2")
    chosen = onnx + RAGGED + parameter("TRITON_BATCH_STRATEGY_PATH", "own.py") + own
    at = write_model(models, "custom_parameters", chosen, graph=RAGGED_GRAPH)
    (at / "own.py").write_text(STRATEGY)
    write_model(models, "bounded", onnx + PADDED + parameter("max_batch_bytes", "64"), graph=PADDED_GRAPH)
    for name, more in (("python", ""), ("python_split", parameter("batch_error", "split"))):
        at = write_model(models, name, PYTHON + more)
        (at / "1" / "model.py").write_text(TEACHER)
    with serving(folder / "log", models) as found:
        yield found


class Caller:
    """Asks over HTTP or gRPC."""

    def __init__(self, server: RunningServer, protocol: str) -> None:
        kind: Any = tritonclient.http if protocol == "http" else tritonclient.grpc
        self._kind = kind
        self._server = server
        self._url = server.url if protocol == "http" else server.grpc_url

    def ask(self, model: str, name: str, value: Array, outputs: Sequence[str] = (), **more: Any) -> dict[str, Array]:
        """The outputs of one request; all where none are named."""
        with self._kind.InferenceServerClient(self._url) as client:
            given = self._kind.InferInput(name, value.shape, {"f": "FP32", "i": "INT64"}[value.dtype.kind])
            given.set_data_from_numpy(value)
            wanted = [self._kind.InferRequestedOutput(output) for output in outputs] or None
            answer = client.infer(model, [given], outputs=wanted, **more)
            response = answer.get_response()
            names = (
                [o["name"] for o in response["outputs"]]
                if isinstance(response, dict)
                else [o.name for o in response.outputs]
            )
            return {output: answer.as_numpy(output) for output in names}

    def together(self, asks: Sequence[Callable[[], dict[str, Array]]]) -> list[Any]:
        """The answers to requests that run in one batch, an exception where one failed."""
        ready = threading.Barrier(len(asks))

        def one(ask: Callable[[], dict[str, Array]]) -> Any:
            ready.wait(10)
            try:
                return ask()
            except InferenceServerException as error:
                return error

        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(one, asks))


@pytest.fixture(params=["http", "grpc"])
def caller(server: RunningServer, request: pytest.FixtureRequest) -> Caller:
    return Caller(server, request.param)


VALUES = [
    np.arange(1, n + 1, dtype=np.float32).reshape(shape)
    for n, shape in ((3, (1, 3)), (5, (1, 5)), (1, (1, 1)), (9, (1, 9)))
]
WAYS = ["", "_process"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_ragged(caller: Caller, server: RunningServer, backend: str, way: str) -> None:
    model = f"{backend}_ragged{way}"
    before = server.statistics(model)["execution_count"]
    answers = caller.together([partial(caller.ask, model, "X", value) for value in VALUES])
    for value, answer in zip(VALUES, answers, strict=True):
        assert answer["Y"].tolist() == (value * 2).tolist()
        assert answer["C"].shape == (1, 1)
    assert server.statistics(model)["execution_count"] == before + 1, "all of them ran together"
    # Each knows where its elements end: in some order of arrival, together they are 18.
    ends = sorted(int(answer["C"][0, 0]) for answer in answers)
    assert ends[-1] == 18
    assert sorted(np.diff([0, *ends]).tolist()) == [1, 3, 5, 9]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["onnx", "torch"])
def test_padded(caller: Caller, server: RunningServer, backend: str, way: str) -> None:
    model = f"{backend}_padded{way}"
    before = server.statistics(model)["execution_count"]
    answers = caller.together([partial(caller.ask, model, "X", value) for value in VALUES])
    for value, answer in zip(VALUES, answers, strict=True):
        assert answer["Y"].tolist() == (value + 1).tolist()
        assert answer["S"].tolist() == [[float(value.sum())]]
    assert server.statistics(model)["execution_count"] == before + 1


def test_each_gets_the_outputs_that_it_asks_for(caller: Caller) -> None:
    wanted = [["Y"], ["S"], ["Y", "S"], []]
    asks = [partial(caller.ask, "onnx_padded", "X", value, names) for value, names in zip(VALUES, wanted, strict=True)]
    answers = caller.together(asks)
    assert [sorted(answer) for answer in answers] == [["Y"], ["S"], ["S", "Y"], ["S", "Y"]]
    for value, answer in zip(VALUES, answers, strict=True):
        assert answer.get("Y", value + 1).tolist() == (value + 1).tolist()


def test_identity_gives_ragged_inputs_and_made_ones_back(caller: Caller) -> None:
    answers = caller.together([partial(caller.ask, "identity_ragged", "X", value) for value in VALUES])
    for value, answer in zip(VALUES, answers, strict=True):
        assert answer["Y"].tolist() == value.tolist()
    assert max(int(answer["C"].ravel()[0]) for answer in answers) == 18


def test_identity_needs_no_word_about_its_outputs(caller: Caller, server: RunningServer) -> None:
    before = server.statistics("identity_alone")["execution_count"]
    answers = caller.together([partial(caller.ask, "identity_alone", "X", value) for value in VALUES])
    assert [answer["Y"].tolist() for answer in answers] == [value.tolist() for value in VALUES]
    assert server.statistics("identity_alone")["execution_count"] == before + 1
    two_rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    answers = caller.together([partial(caller.ask, "identity_alone", "X", value) for value in [two_rows, *VALUES[:2]]])
    assert [answer["Y"].tolist() for answer in answers] == [v.tolist() for v in (two_rows, *VALUES[:2])]


def test_a_python_model_gets_ragged_requests_apart(caller: Caller, server: RunningServer) -> None:
    answers = caller.together([partial(caller.ask, "python", "X", value) for value in VALUES])
    for value, answer in zip(VALUES, answers, strict=True):
        assert answer["Y"].tolist() == (value * 2).tolist()
        assert answer["C"].tolist() == [[CALLERS]]


def runs(server: RunningServer, model: str, act: Callable[[], object]) -> int:
    """How often the model runs for what ``act`` asks."""
    before: int = server.statistics(model)["execution_count"]
    act()
    return int(server.statistics(model)["execution_count"]) - before


@pytest.mark.slow
@pytest.mark.parametrize("model", ["custom", "custom_parameters"])
def test_a_rule_of_the_model_s_own(caller: Caller, server: RunningServer, model: str) -> None:
    answers: list[Any] = []
    asks = [partial(caller.ask, model, "X", value) for value in VALUES]
    assert runs(server, model, lambda: answers.extend(caller.together(asks))) == 2
    assert [answer["Y"].tolist() for answer in answers] == [(value * 2).tolist() for value in VALUES]


def test_a_rule_that_fails_is_left_out(caller: Caller, server: RunningServer) -> None:
    asks = [partial(caller.ask, "custom", "X", value, parameters={"fail": True}) for value in VALUES]
    assert runs(server, "custom", lambda: caller.together(asks)) == 1
    server.wait_for("include_request() of the batch strategy of model 'custom' failed")


@pytest.mark.slow
def test_bytes_of_a_batch_are_bounded_with_their_padding(caller: Caller, server: RunningServer) -> None:
    """Each is padded to 8 or 16 numbers of 4 bytes: two short ones are 64 bytes."""
    answers: list[Any] = []
    values = [VALUES[0], VALUES[1], VALUES[0], VALUES[1]]
    asks = [partial(caller.ask, "bounded", "X", value) for value in values]
    assert runs(server, "bounded", lambda: answers.extend(caller.together(asks))) == 2
    assert [answer["Y"].tolist() for answer in answers] == [(value + 1).tolist() for value in values]


# Poisoned batches


def outcomes(server: RunningServer, model: str) -> tuple[int, int, int]:
    found = server.statistics(model)
    parts = found["inference_stats"]
    return parts["success"]["count"], parts["fail"]["count"], found["execution_count"]


def changed(server: RunningServer, model: str, act: Callable[[], object]) -> tuple[int, ...]:
    before = outcomes(server, model)
    act()
    return tuple(b - a for a, b in zip(before, outcomes(server, model), strict=True))


@pytest.mark.parametrize(
    ("model", "counted"),
    # The whole, its halves, the parts of the one with the bad index; or just the whole.
    [("split", (3, 1, 5)), ("split_process", (3, 1, 5)), ("fail", (0, 4, 1))],
)
def test_a_poisoned_batch(caller: Caller, server: RunningServer, model: str, counted: tuple[int, ...]) -> None:
    indices = [0, 1, 77, 3]
    answers: list[Any] = []

    def act() -> None:
        values = [np.array([[index]], np.int64) for index in indices]
        answers.extend(caller.together([partial(caller.ask, model, "index", v) for v in values]))

    assert changed(server, model, act) == counted
    for index, answer in zip(indices, answers, strict=True):
        if model == "fail" or index == 77:
            assert isinstance(answer, InferenceServerException)
            assert "onnxruntime" in str(answer)
        else:
            assert answer["value"].tolist() == [[10.0 + index]]


@pytest.mark.parametrize(("model", "counted"), [("python", (0, 4, 1)), ("python_split", (3, 1, 1))])
def test_a_poisoned_batch_of_a_python_model(
    caller: Caller, server: RunningServer, model: str, counted: tuple[int, ...]
) -> None:
    values = [np.array([[v]], np.float32) for v in (1, 2, -3, 4)]
    answers: list[Any] = []

    def act() -> None:
        answers.extend(caller.together([partial(caller.ask, model, "X", v) for v in values]))

    assert changed(server, model, act) == counted
    for value, answer in zip(values, answers, strict=True):
        if model == "python" or value[0, 0] < 0:
            assert isinstance(answer, InferenceServerException)
            assert "ValueError: negative" in str(answer)
        else:
            assert answer["Y"].tolist() == (value * 2).tolist()
            assert answer["C"].tolist() == [[1]], "it ran alone"


# Bad requests and bad configurations


def test_a_request_that_does_not_fit_hurts_nobody(caller: Caller) -> None:
    for value in (np.zeros((17, 1), np.float32), np.zeros((0, 1), np.float32), np.zeros((1, 1, 1), np.float32)):
        with pytest.raises(InferenceServerException):
            caller.ask("onnx_padded", "X", value)
    with pytest.raises(InferenceServerException, match="'M'"):
        caller.ask("onnx_padded", "M", np.zeros((1, 1), np.float32))
    empty = np.zeros((1, 0), np.float32)
    asks = [partial(caller.ask, "onnx_padded", "X", v) for v in (empty, *VALUES[:3])]
    for value, answer in zip((empty, *VALUES[:3]), caller.together(asks), strict=True):
        assert answer["Y"].tolist() == (value + 1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "graph", "problem"),
    [
        (RAGGED.replace('target_name: "I"', 'target_name: "J"'), RAGGED_GRAPH, "unexpected inference input 'J'"),
        (RAGGED, RAGGED_GRAPH.replace("float[n]", "float[n, 2]"), "it holds a batch as a tensor of shape"),
        (PADDED.replace("mask=M", "mask=N"), PADDED_GRAPH, "unexpected inference input 'N'"),
        (PADDED.replace("mask=M", "mask=M, mask_type=INT64"), PADDED_GRAPH, "the configuration says TYPE_INT64"),
        (PADDED.replace("pad(1000", "pad(huge"), PADDED_GRAPH, "the value is 'huge'"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(tmp_path: Path, config: str, graph: str, problem: str) -> None:
    write_model(tmp_path / "models", "wrong", 'platform: "onnxruntime_onnx"\n' + config, graph=graph)
    code, log = run_to_end(tmp_path / "log", tmp_path / "models")
    assert code == 1
    assert problem in log
