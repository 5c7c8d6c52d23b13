"""What people do with the official client, in each of its four flavours."""

from __future__ import annotations

import asyncio
import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import onnx.parser
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from interop.calls import CALL_S, OWN_CONNECTION, channel, same, stub
from interop.flavours import FLAVOURS, Flavour, flavour_of
from interop.models import VALUES
from naiad.testing import RunningServer, serving
from support.served_models import SUM_AND_DIFFERENCE, identity, write_model
from support.shared_regions import memory

MEGABYTE = 1 << 20
# Four classes: how much of an image is red, green, blue, or dark.
IMAGES = """<ir_version: 8, opset_import: ["": 17]>
images (float[N, 3, 8, 8] pixels) => (float[N, 4] scores) {
  colours = GlobalAveragePool (pixels)
  flat = Constant <value_ints = [0, 3]> ()
  rows = Reshape (colours, flat)
  axis = Constant <value_ints = [1]> ()
  light = ReduceSum <keepdims = 1> (rows, axis)
  half = Constant <value_floats = [0.5]> ()
  dark = Sub (half, light)
  scores = Concat <axis = 1> (rows, dark)
}"""
LABELS = ("red", "green", "blue", "dark")
IMAGE_CONFIG = """
max_batch_size: 4
input [ { name: "pixels" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 8, 8 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 4 ] label_filename: "labels.txt" } ]
"""


def write_models(repository: Path) -> None:
    for datatype in VALUES:
        config_type = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        write_model(repository, f"id_{datatype}", identity(config_type, "-1", max_batch_size=4))
    for name in ("sum", "sum_too", "overridden"):
        write_model(repository, name, "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    write_model(repository, "images", IMAGE_CONFIG, graph=IMAGES)
    (repository / "images" / "labels.txt").write_text("\n".join(LABELS) + "\n")


@pytest.fixture(scope="module")
def server(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("flavours")
    write_models(folder / "models")
    options = ("--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true")
    with serving(folder / "log", folder / "models", *options, "--grpc-transport", transport) as running:
        yield running
    assert "Exception in callback" not in running.log


@pytest.fixture(params=FLAVOURS)
def flavour(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Flavour]:
    with flavour_of(server, request.param) as found:
        yield found


def row(value: int) -> np.ndarray:
    return np.full((1, 16), value, np.int32)


def pair(flavour: Flavour, first: int, second: int) -> list[Any]:
    return [flavour.input("INPUT0", row(first), "INT32"), flavour.input("INPUT1", row(second), "INT32")]


def sums(result: Any) -> tuple[int, int]:
    """The sum and the difference, which are the same all along their rows."""
    found = [set(result.as_numpy(name).ravel().tolist()) for name in ("OUTPUT0", "OUTPUT1")]
    assert [len(values) for values in found] == [1, 1]
    return found[0].pop(), found[1].pop()


# Inference


def test_describing(flavour: Flavour) -> None:
    assert flavour.call("is_server_live")
    assert flavour.call("is_server_ready")
    assert flavour.call("is_model_ready", "sum")
    assert not flavour.call("is_model_ready", "nope")
    metadata = flavour.json("get_server_metadata")
    # Shared memory only where it is allowed.
    assert set(EXTENSIONS) - set(metadata["extensions"]) <= {"system_shared_memory", "cuda_shared_memory"}
    assert metadata["extensions"] == [name for name in EXTENSIONS if name in metadata["extensions"]]
    assert flavour.json("get_model_metadata", "sum")["versions"] == ["1"]
    config = flavour.json("get_model_config", "sum")
    assert config.get("config", config)["max_batch_size"] == 8


EXTENSIONS = (
    "classification", "sequence", "model_repository", "model_repository(unload_dependents)", "schedule_policy",
    "model_configuration", "system_shared_memory", "cuda_shared_memory", "binary_tensor_data", "parameters",
    "statistics", "trace", "logging",
)  # fmt: skip
"""What the reference lists, in its order."""


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_comes_back(flavour: Flavour, datatype: str) -> None:
    values = VALUES[datatype]
    result = flavour.call("infer", f"id_{datatype}", [flavour.input("INPUT0", values, datatype)], request_id="7")
    assert same(result.as_numpy("OUTPUT0"), values)


def test_many_requests_at_once_over_http_aio(server: RunningServer) -> None:
    with flavour_of(server, "http.aio") as flavour:

        async def many() -> list[Any]:
            return await asyncio.gather(*(flavour.client.infer("sum", pair(flavour, n, 1)) for n in range(50)))

        assert [sums(result) for result in flavour.wait(many())] == [(n + 1, n - 1) for n in range(50)]


@pytest.mark.parametrize("kind", ["grpc", "grpc.aio"])
@pytest.mark.parametrize(
    "options",
    [
        {"channel_args": [OWN_CONNECTION, ("grpc.max_send_message_length", MEGABYTE), ("grpc.minimal_stack", 0)]},
        {"channel_args": [OWN_CONNECTION, ("grpc.default_compression_algorithm", 2), ("grpc.enable_retries", 0)]},
        {"channel_args": [("grpc.primary_user_agent", "mine/1.0"), ("grpc.lb_policy_name", "round_robin")]},
        {
            "keepalive_options": triton.KeepAliveOptions(
                keepalive_time_ms=10_000,
                keepalive_timeout_ms=5_000,
                keepalive_permit_without_calls=True,
                http2_max_pings_without_data=0,
            )
        },
    ],
    ids=["sizes", "compression", "policy", "keepalive"],
)  # fmt: skip
def test_channels_of_all_kinds(server: RunningServer, kind: str, options: dict[str, Any]) -> None:
    with flavour_of(server, kind, **options) as flavour:
        for n in range(3):
            assert sums(flavour.call("infer", "sum", pair(flavour, n, 1))) == (n + 1, n - 1)


def test_objects_are_used_again(flavour: Flavour) -> None:
    """The same inputs and outputs: for several models, with data, in regions, with data again."""
    inputs = pair(flavour, 0, 0)
    outputs = [flavour.output("OUTPUT0"), flavour.output("OUTPUT1")]
    with memory(1024) as region:
        flavour.call("register_system_shared_memory", "again", region.key, 1024)
        try:
            for turn in range(3):
                for model in ("sum", "sum_too"):
                    inputs[0].set_data_from_numpy(row(turn))
                    inputs[1].set_data_from_numpy(row(5))
                    assert sums(flavour.call("infer", model, inputs, outputs=outputs)) == (turn + 5, turn - 5)
                region.put(row(10 * turn))
                region.put(row(1), 64)
                inputs[0].set_shared_memory("again", 64)
                inputs[1].set_shared_memory("again", 64, 64)
                outputs[0].set_shared_memory("again", 64, 128)
                result = flavour.call("infer", "sum", inputs, outputs=outputs)
                assert region.get(np.int32, [1, 16], 128).tolist() == row(10 * turn + 1).tolist()
                assert result.as_numpy("OUTPUT1").tolist() == row(10 * turn - 1).tolist()
                outputs[0].unset_shared_memory()
        finally:
            flavour.call("unregister_system_shared_memory", "again")


def test_strings_in_regions(flavour: Flavour) -> None:
    texts = np.array([[b"a", "\u2603 \u00fc".encode(), b"", b"\x00\xff" * 40]], np.object_)
    packed = np.frombuffer(serialize_byte_tensor(texts).item(), np.uint8)
    with memory(4096) as region:
        region.put(packed)
        flavour.call("register_system_shared_memory", "texts", region.key, 4096)
        try:
            given = flavour.library.InferInput("INPUT0", list(texts.shape), "BYTES")
            given.set_shared_memory("texts", packed.nbytes)
            wanted = flavour.output("OUTPUT0")
            wanted.set_shared_memory("texts", 2048, 2048)
            flavour.call("infer", "id_BYTES", [given], outputs=[wanted])
            assert region.get(np.object_, list(texts.shape), 2048).tolist() == texts.tolist()
            # One part alone: the answer is in the message.
            assert flavour.call("infer", "id_BYTES", [given]).as_numpy("OUTPUT0").tolist() == texts.tolist()
        finally:
            flavour.call("unregister_system_shared_memory")


# Typed contents

FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def typed(datatype: str, values: np.ndarray, field: str) -> Any:
    request = pb.ModelInferRequest(model_name=f"id_{datatype}", id="7")
    given = request.inputs.add(name="INPUT0", datatype=datatype, shape=values.shape)
    getattr(given.contents, field).extend(values.ravel().tolist())
    return request


@pytest.mark.parametrize("datatype", FIELDS)
def test_typed_contents(server: RunningServer, datatype: str) -> None:
    values = VALUES[datatype]
    request = typed(datatype, values, FIELDS[datatype])
    with channel(server) as opened:
        over_unary = stub(opened).ModelInfer(request, timeout=CALL_S)
        (over_stream,) = stub(opened).ModelStreamInfer(iter([request]), timeout=CALL_S)
    assert over_stream.error_message == ""
    for answer in (over_unary, over_stream.infer_response):
        assert answer.id == "7"
        # Answers carry raw tensors, whatever the request did.
        expected = serialize_byte_tensor(values).item() if datatype == "BYTES" else values.tobytes()
        assert list(answer.raw_output_contents) == [expected]


@pytest.mark.parametrize(
    ("datatype", "field", "values", "text"),
    [
        ("INT32", "fp32_contents", [1.0, 2.0], "unexpected explicit tensor data for input tensor 'INPUT0'"),
        ("FP16", "fp32_contents", [1.0, 2.0], "unexpected explicit tensor data for input tensor 'INPUT0'"),
        ("INT8", "int_contents", [1, 128], "128"),
        ("UINT16", "uint_contents", [1, 65536], "65536"),
        ("FP64", "fp64_contents", [1.0], "Expected 16, got 8"),
        ("BYTES", "bytes_contents", [b"a", b"b", b"c"], "expect"),
    ],
    ids=["wrong field", "no field for it", "INT8", "UINT16", "too few", "too many"],
)
def test_typed_contents_that_are_wrong(
    server: RunningServer, datatype: str, field: str, values: Any, text: str
) -> None:
    request = pb.ModelInferRequest(model_name=f"id_{datatype}")
    given = request.inputs.add(name="INPUT0", datatype=datatype, shape=[1, 2])
    getattr(given.contents, field).extend(values)
    with channel(server) as opened, pytest.raises(grpc.RpcError) as caught:
        stub(opened).ModelInfer(request, timeout=CALL_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


# Models that come and go


def test_model_control(flavour: Flavour) -> None:
    def size() -> int:
        config = flavour.json("get_model_config", "overridden")
        return int(config.get("config", config).get("max_batch_size", 0))

    def refused(*arguments: Any, **named: Any) -> str:
        with pytest.raises(InferenceServerException) as caught:
            flavour.call("load_model", *arguments, **named)
        return str(caught.value.message())

    flavour.call("load_model", "overridden")
    assert size() == 8
    flavour.call("load_model", "overridden", config='{"max_batch_size": "16"}')
    assert size() == 16
    assert sums(flavour.call("infer", "overridden", pair(flavour, 2, 1))) == (3, 1)
    # What is wrong leaves what serves.
    for wrong in ("[]", "{", '"parameters": {"config": {{"max_batch_size": "16"}}}', '{"max_batch_size": "many"}'):
        assert "overridden" in refused("overridden", config=wrong)
        assert size() == 16
    assert "wrong_model_name" in refused("wrong_model_name")
    graph = onnx.parser.parse_model(SUM_AND_DIFFERENCE.replace("Add", "Mul"))
    flavour.call(
        "load_model",
        "overridden",
        config=json.dumps({"max_batch_size": 4, "platform": "onnxruntime_onnx"}),
        files={"file:7/model.onnx": graph.SerializeToString()},
    )
    answer = flavour.call("infer", "overridden", pair(flavour, 3, 4), model_version="7")
    assert sums(answer) == (12, -1)
    flavour.call("unload_model", "overridden")
    assert not flavour.call("is_model_ready", "overridden")
    index = flavour.json("get_model_repository_index")
    states = {m["name"]: m.get("state") for m in (index["models"] if isinstance(index, dict) else index)}
    assert states["sum"] == "READY"
    assert states["overridden"] != "READY"
    # As it lies in the repository, and as often as one likes.
    for _ in range(2):
        flavour.call("load_model", "overridden")
    assert size() == 8
    flavour.call("unload_model", "overridden")


# Classification


def image(colour: int) -> np.ndarray:
    """All of one colour; 3 for a dark one."""
    pixels = np.zeros((3, 8, 8), np.float32)
    if colour < 3:
        pixels[colour] = 0.9
    return pixels


def top(result: Any) -> list[list[str]]:
    """The label and the index of each class, best first, by image."""
    found = result.as_numpy("scores")
    return [[":".join(text.decode().split(":")[1:]) for text in of_one] for of_one in found]


WANTED = [["0:red", "1:green"], ["1:green", "0:red"], ["2:blue", "0:red"], ["3:dark", "0:red"]]


def test_classes_of_images(flavour: Flavour) -> None:
    batch = np.stack([image(colour) for colour in range(4)])
    outputs = [flavour.output("scores", class_count=2)]
    result = flavour.call("infer", "images", [flavour.input("pixels", batch, "FP32")], outputs=outputs)
    assert top(result) == WANTED
    single = flavour.call("infer", "images", [flavour.input("pixels", batch[2:3], "FP32")], outputs=outputs)
    assert top(single) == [WANTED[2]]
    value = float(single.as_numpy("scores")[0][0].decode().split(":")[0])
    assert value == pytest.approx(0.9)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_as_many_classes_as_there_are(flavour: Flavour, count: int) -> None:
    outputs = [flavour.output("scores", class_count=count)]
    result = flavour.call("infer", "images", [flavour.input("pixels", image(1)[None], "FP32")], outputs=outputs)
    assert result.as_numpy("scores").shape == (1, min(count, 4))


def test_classes_of_images_by_callbacks_and_streams(server: RunningServer) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def take(result: Any, error: Any) -> None:
        answers.put((result, error))

    with flavour_of(server, "grpc") as flavour:
        outputs = [flavour.output("scores", class_count=2)]
        given = [[flavour.input("pixels", image(colour)[None], "FP32")] for colour in range(4)]
        for colour in range(4):
            flavour.client.async_infer("images", given[colour], take, outputs=outputs, request_id=str(colour))
        for _ in range(4):
            result, error = answers.get(timeout=CALL_S)
            assert error is None
            assert top(result) == [WANTED[int(result.get_response().id)]]
        flavour.client.start_stream(take)
        for colour in range(4):
            flavour.client.async_stream_infer("images", given[colour], outputs=outputs, request_id=str(colour))
        for colour in range(4):
            result, error = answers.get(timeout=CALL_S)
            assert error is None
            assert (result.get_response().id, top(result)) == (str(colour), [WANTED[colour]])
        flavour.client.stop_stream()
    with flavour_of(server, "http") as flavour:
        outputs = [flavour.output("scores", class_count=2)]
        pending = [
            flavour.client.async_infer(
                "images", [flavour.input("pixels", image(colour)[None], "FP32")], outputs=outputs
            )
            for colour in range(4)
        ]
        assert [top(one.get_result(timeout=CALL_S)) for one in pending] == [[wanted] for wanted in WANTED]


# Many clients


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLAVOURS)
def test_many_clients_leave_no_memory_behind(server: RunningServer, kind: str) -> None:
    """Each asks and goes. After those that warm the server up, none makes it larger."""

    def one(n: int) -> None:
        own = {"channel_args": [OWN_CONNECTION]} if kind.startswith("grpc") else {}
        with flavour_of(server, kind, **own) as flavour:
            outputs = [flavour.output("OUTPUT0"), flavour.output("OUTPUT1")]
            result = flavour.call("infer", "sum", pair(flavour, n, 1), outputs=outputs, request_id=str(n))
            assert sums(result) == (n + 1, n - 1)

    for n in range(150):
        one(n)
    before = server.memory_bytes()
    for n in range(300):
        one(n)
    assert server.memory_bytes() - before < 6 * MEGABYTE
