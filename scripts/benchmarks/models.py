"""The model repositories that the cases are measured on, built afresh for every run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .figures import CaseSkippedError

Array = np.ndarray[Any, Any]
TensorShape = tuple[str, str, Sequence[str | int]]
LINEAR_LAYERS = 1000
RESNET_INPUT = (1, 3, 224, 224)
TABLE_ROWS = 16


def tensor_field(kind: str, name: str, data_type: str, dims: Sequence[int]) -> str:
    """One ``input`` or ``output`` entry of a configuration."""
    return f'{kind} [ {{ name: "{name}" data_type: {data_type} dims: {list(dims)} }} ]'


def one_instance(threads: int, key: str = "intra_op_thread_count") -> str:
    """The fields for a single instance whose framework uses ``threads`` threads."""
    return instances(1, threads, key)


def instances(count: int, threads: int, key: str = "intra_op_thread_count") -> str:
    """The fields for ``count`` instances whose framework uses ``threads`` threads for each."""
    return "\n".join(
        (
            f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]",
            f'parameters {{ key: "{key}" value {{ string_value: "{threads}" }} }}',
        )
    )


def add_model(repository: Path, name: str, *fields: str) -> Path:
    """Write ``config.pbtxt`` of one model and return its empty version folder."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text("\n".join((f'name: "{name}"', *fields)) + "\n")
    return version


def add_identity(
    repository: Path,
    name: str,
    dims: Sequence[int],
    max_batch_size: int,
    datatype: str = "TYPE_FP32",
    fields: Sequence[str] = (),
    count: int = 1,
) -> None:
    """A model of ``count`` instances that gives INPUT0 back as OUTPUT0."""
    add_model(
        repository,
        name,
        'backend: "identity"',
        f"max_batch_size: {max_batch_size}",
        tensor_field("input", "INPUT0", datatype, dims),
        tensor_field("output", "OUTPUT0", datatype, dims),
        f"instance_group [ {{ kind: KIND_CPU count: {count} }} ]",
        *fields,
    )


def add_mlp(repository: Path, name: str = "mlp", count: int = 1) -> Path:
    """A small network of ``count`` instances, x FP32 [16] to y FP32 [16], batched up to 64; returns its file."""
    version = add_model(
        repository,
        name,
        'platform: "onnxruntime_onnx"',
        "max_batch_size: 64",
        tensor_field("input", "x", "TYPE_FP32", [16]),
        tensor_field("output", "y", "TYPE_FP32", [16]),
        "dynamic_batching { }",
        instances(count, threads=1),
    )
    save_graph(version / "model.onnx", [("x", "FLOAT", ["rows", 16])], _mlp_nodes("y"), mlp_weights(), "y")
    return version / "model.onnx"


def add_picky(repository: Path, name: str, max_batch_size: int, delay_us: int) -> Path:
    """The same network with a look-up behind it, y = mlp(x) + table[row].

    A ``row`` beyond the table makes the model fail while it runs, and with it the whole batch it is run in.
    """
    version = add_model(
        repository,
        name,
        'platform: "onnxruntime_onnx"',
        f"max_batch_size: {max_batch_size}",
        tensor_field("input", "x", "TYPE_FP32", [16]),
        tensor_field("input", "row", "TYPE_INT64", [1]),
        tensor_field("output", "y", "TYPE_FP32", [16]),
        f"dynamic_batching {{ max_queue_delay_microseconds: {delay_us} }}",
        one_instance(threads=1),
    )
    nodes = [
        *_mlp_nodes("hidden"),
        ("Squeeze", ["row", "axis"], "place"),
        ("Gather", ["table", "place"], "looked_up"),
        ("Add", ["hidden", "looked_up"], "y"),
    ]
    weights = mlp_weights() | {"table": lookup_table(), "axis": np.array([1], np.int64)}
    inputs: list[TensorShape] = [("x", "FLOAT", ["rows", 16]), ("row", "INT64", ["rows", 1])]
    save_graph(version / "model.onnx", inputs, nodes, weights, "y")
    return version / "model.onnx"


def mlp_weights() -> dict[str, Array]:
    """The three weight matrices of the small network."""
    random = np.random.default_rng(7)
    shapes = {"w1": (16, 64), "w2": (64, 64), "w3": (64, 16)}
    return {name: (random.standard_normal(shape) / 8).astype(np.float32) for name, shape in shapes.items()}


def lookup_table() -> Array:
    """What ``add_picky`` looks up: [TABLE_ROWS, 16]."""
    return np.random.default_rng(8).random((TABLE_ROWS, 16), np.float32)


def mlp_by_hand(x: Array) -> Array:
    """The small network in numpy, to compare answers with."""
    w = mlp_weights()
    hidden = np.maximum(np.maximum(x @ w["w1"], 0) @ w["w2"], 0)
    answer: Array = hidden @ w["w3"]
    return answer


def _mlp_nodes(output: str) -> list[tuple[str, list[str], str]]:
    return [
        ("MatMul", ["x", "w1"], "a"),
        ("Relu", ["a"], "b"),
        ("MatMul", ["b", "w2"], "c"),
        ("Relu", ["c"], "d"),
        ("MatMul", ["d", "w3"], output),
    ]


def save_graph(
    path: Path,
    inputs: Sequence[TensorShape],
    nodes: Sequence[tuple[str, list[str], str]],
    weights: dict[str, Array],
    output: str,
    width: int | str = 16,
) -> None:
    """Write an ONNX network whose FP32 output is [rows, width]; a name stands for any width."""
    onnx = _import_onnx()
    make, tensors = onnx.helper, onnx.TensorProto
    graph = make.make_graph(
        [make.make_node(kind, sources, [target]) for kind, sources, target in nodes],
        path.parent.parent.name,
        [make.make_tensor_value_info(name, getattr(tensors, dtype), list(shape)) for name, dtype, shape in inputs],
        [make.make_tensor_value_info(output, tensors.FLOAT, ["rows", width])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    model.ir_version = 9
    onnx.save(model, path)


def add_table(repository: Path, name: str, rows: int, *fields: str, like: Path | None = None) -> Path:
    """A model that looks rows of FP32 [16] up in a table of ``rows``, which its file holds; returns that file.

    With ``like`` it is one that was made before: a large one takes long to make.
    """
    version = add_model(
        repository,
        name,
        'platform: "onnxruntime_onnx"',
        tensor_field("input", "row", "TYPE_INT64", [-1]),
        tensor_field("output", "y", "TYPE_FP32", [-1, 16]),
        one_instance(threads=1),
        *fields,
    )
    file = version / "model.onnx"
    if like is not None:
        file.hardlink_to(like)
        return file
    table = {"table": np.ones((rows, 16), np.float32)}
    save_graph(file, [("row", "INT64", ["rows"])], [("Gather", ["table", "row"], "y")], table, "y")
    return file


def add_resnet(repository: Path, name: str, threads: int) -> tuple[Path, str, str]:
    """resnet50 with random weights and a fixed batch of one; returns its file, input name and output name."""
    onnx = _import_onnx()
    source = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    if not source.exists():
        raise CaseSkippedError(f"this onnx package comes without {source.name}")
    model = onnx.load(source)
    _fill_with_random_weights(onnx, model)
    image, scores = model.graph.input[0].name, model.graph.output[0].name
    version = add_model(
        repository,
        name,
        'platform: "onnxruntime_onnx"',
        "max_batch_size: 0",
        tensor_field("input", image, "TYPE_FP32", RESNET_INPUT),
        tensor_field("output", scores, "TYPE_FP32", (1, 1000)),
        one_instance(threads),
        # The plain loop it is compared with spins between the steps of a run; Naiad does not unless told to.
        'parameters { key: "session.intra_op.allow_spinning" value { string_value: "1" } }',
    )
    onnx.save(model, version / "model.onnx")
    return version / "model.onnx", image, scores


def _fill_with_random_weights(onnx: Any, model: Any) -> None:
    """Put random initializers where the light network computes constant ones."""
    graph = model.graph
    known = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    random = np.random.default_rng(11)
    used = {name for node in graph.node if node.op_type != "ConstantOfShape" for name in node.input}
    weights = {name: array for name, array in known.items() if name in used}
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape"]:
        weights[node.output[0]] = _random_weight(random, node.output[0], tuple(known[node.input[0]]))
        graph.node.remove(node)
    kept_inputs = [value for value in graph.input if value.name not in known]
    del graph.input[:], graph.initializer[:]
    graph.input.extend(kept_inputs)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    model.ir_version = 9


def _random_weight(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    if len(shape) == 1:
        low, high = (0.9, 1.1) if name.endswith(("_s_0", "_riv_0")) else (-0.01, 0.01)
        return random.uniform(low, high, shape).astype(np.float32)
    fan_in = float(np.prod(shape[1:]))
    weights: Array = random.standard_normal(shape) * np.sqrt(1 / fan_in)
    return weights.astype(np.float32)


def add_linear_models(repository: Path, sample: Array) -> tuple[Path, Array]:
    """``linear_model`` (batched dynamically) and ``linear_unbatched``, the same 1000 chained layers of one neuron.

    Returns the file and what the network answers to ``sample``, FP32 [rows, 1].
    """
    try:
        import torch
    except ImportError:
        raise CaseSkippedError("torch is not installed (pip install torch)") from None
    torch.manual_seed(3)
    chain = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(LINEAR_LAYERS))).eval()
    traced = torch.jit.trace(chain, torch.zeros(1, 1))
    batching = "dynamic_batching { preferred_batch_size: [ 4, 8, 16 ] max_queue_delay_microseconds: 100 }"
    for name, scheduling in (("linear_model", batching), ("linear_unbatched", "")):
        version = add_model(
            repository,
            name,
            'platform: "pytorch_libtorch"',
            "max_batch_size: 32",
            tensor_field("input", "INPUT", "TYPE_FP32", [1]),
            tensor_field("output", "OUTPUT", "TYPE_FP32", [1]),
            scheduling,
            one_instance(threads=1, key="INTRA_OP_THREAD_COUNT"),
        )
        torch.jit.save(traced, version / "model.pt")
    with torch.inference_mode():
        answer: Array = chain(torch.from_numpy(sample)).numpy()
    return repository / "linear_model" / "1" / "model.pt", answer


def _import_onnx() -> Any:
    try:
        import onnx
        import onnxruntime  # noqa: F401  (what the server runs these networks with)
    except ImportError:
        raise CaseSkippedError("onnx is not installed (pip install onnx onnxruntime)") from None
    return onnx
