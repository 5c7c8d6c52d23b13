from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from naiad.errors import BackendError, InvalidArgumentError, ModelLoadError
from naiad.tensor.dtypes import BY_WIRE
from support import onnx_models
from support.backend_contract import BackendContract, Case, assert_same, context, group, running, spec, started, values
from support.config_texts import parameter

ECHO = """backend: "onnxruntime" max_batch_size: 8
input [ {{ name: "A" data_type: {0} dims: 3 }}, {{ name: "B" data_type: {0} dims: 3 }} ]
output [ {{ name: "X" data_type: {0} dims: 3 }}, {{ name: "Y" data_type: {0} dims: 3 }} ] """
DOUBLE = """max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: 3 }
output { name: "Y" data_type: TYPE_FP32 dims: 3 } """


class TestContract(BackendContract):
    name = "onnxruntime"
    wires = tuple(BY_WIRE)

    def echo(self, folder: Path, wire: str, rows: int) -> Case:
        path = onnx_models.echo(folder / "model.onnx", wire)
        a, b = values(wire, (rows, 3), 1), values(wire, (rows, 3), 2)
        return Case(context(path), spec(ECHO.format(BY_WIRE[wire].config)), {"A": a, "B": b}, {"X": a, "Y": b})


def load(path: Path, text: str, **settings: str) -> None:
    with started("onnxruntime", context(path, **settings), spec(text)):
        pass


def refusal(path: Path, text: str, **settings: str) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load(path, text, **settings)
    return str(caught.value)


# The configuration against the graph


def tensors(x: str = "TYPE_FP32 dims: 3", y: str = "TYPE_FP32 dims: 3", batch: int = 8, name: str = "X") -> str:
    return f'max_batch_size: {batch} input {{ name: "{name}" data_type: {x} }} output {{ name: "Y" data_type: {y} }} '


def test_open_dims_are_accepted_for_fixed_ones(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", (None, 256, 25), (None, 256, 25))
    load(path, tensors("TYPE_FP32 dims: [ -1, 25 ]", "TYPE_FP32 dims: [ 256, -1 ]"))
    load(path, tensors("TYPE_FP32 dims: [ -1, -1, 25 ]", "TYPE_FP32 dims: [ -1, 256, 25 ]", batch=0))


def test_wrong_dims_show_both_shapes_the_axis_and_what_to_write(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", (None, 256, 25), (None, 256, 25))
    text = refusal(path, tensors("TYPE_FP32 dims: [ 256, 24 ]", "TYPE_FP32 dims: [ 256, 25 ]"))
    assert "tensor 'X'" in text and "output" not in text
    assert "the model expects 3 dimensions (shape [-1,256,25])" in text
    assert "the explicit tensor shape, making complete shape [-1,256,24])" in text
    assert "axis 2 is 24 where the model has 25" in text
    assert "write dims: [ 256, 25 ]" in text


def test_a_wrong_rank_counts_the_axes(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    text = refusal(path, tensors("TYPE_FP32 dims: [ -1, 3 ]"))
    assert (
        "the model expects 2 dimensions (shape [-1,3]) but the model configuration specifies 3 dimensions (an" in text
    )
    assert "making complete shape [-1,-1,3])" in text
    assert "3 axes where the model has 2" in text and "write dims: [ 3 ]" in text


def test_reshape_is_what_the_graph_is_compared_with(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    load(path, tensors("TYPE_FP32 dims: [ 1, 3 ] reshape { shape: 3 }"))
    text = refusal(path, tensors("TYPE_FP32 dims: [ 1, 4 ] reshape { shape: 4 }"))
    assert "shape [-1,4]" in text and "write reshape { shape: [ 3 ] }" in text


def test_a_wrong_type_shows_both(tmp_path: Path) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx"), tensors("TYPE_INT32 dims: 3"))
    assert "says TYPE_INT32, the model has TYPE_FP32 (tensor(float)); write data_type: TYPE_FP32" in text


def test_a_wrong_name_shows_the_nearest_and_the_missing_one(tmp_path: Path) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx"), tensors(name="x"))
    assert "unexpected inference input 'x', allowed inputs are: X, did you mean 'X'?" in text
    assert 'write input { name: "X" data_type: TYPE_FP32 dims: [ 3 ] }' in text


def test_every_problem_is_listed(tmp_path: Path) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx"), tensors("TYPE_INT32 dims: 3", "TYPE_FP32 dims: 4"))
    assert "input 'X'" in text and "tensor 'Y'" in text


@pytest.mark.parametrize("names", [("A",), ("A", "B", "C")])
def test_a_wrong_number_of_inputs_is_counted(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = ("FP32", ("N", 3))
    adds = helper.make_node("Add", ["A", "B"], ["Y"])
    path = onnx_models.save(tmp_path / "m.onnx", [adds], {"A": rows, "B": rows}, {"Y": rows})
    inputs = ", ".join(f'{{ name: "{name}" data_type: TYPE_FP32 dims: 3 }}' for name in names)
    output = '{ name: "Y" data_type: TYPE_FP32 dims: 3 }'
    text = refusal(path, f"max_batch_size: 8 input [ {inputs} ] output [ {output} ]")
    assert f"unable to load model 'm', configuration expects {len(names)} inputs, model provides 2: " in text


def test_a_fixed_batch_axis_cannot_batch(tmp_path: Path) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx", (1, 3), (1, 3)), tensors())
    assert "[1,3]" in text and "write max_batch_size: 0" in text


def test_only_some_outputs_may_be_configured(tmp_path: Path) -> None:
    path = onnx_models.echo(tmp_path / "m.onnx")
    text = ECHO.format("TYPE_FP32").replace(', { name: "Y" data_type: TYPE_FP32 dims: 3 }', "")
    a = np.ones((1, 3), np.float32)
    with running("onnxruntime", context(path), spec(text)) as instance:
        assert_same(instance.execute({"A": a, "B": a}, ("X",))["X"], a)


# Special tensors


def test_an_input_with_a_default_may_be_left_out_or_given(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    io = {"X": ("FP32", ("N", 3)), "W": ("FP32", (3,))}
    weight = {"W": np.full(3, 10, np.float32)}
    onnx_models.save(path, [helper.make_node("Add", ["X", "W"], ["Y"])], io, {"Y": ("FP32", ("N", 3))}, weight)
    x = np.zeros((2, 3), np.float32)
    with running("onnxruntime", context(path), spec(DOUBLE)) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x + 10)
    listed = tensors("TYPE_FP32 dims: [ -1, 3 ]", "TYPE_FP32 dims: [ -1, 3 ]", batch=0)
    listed += 'input { name: "W" data_type: TYPE_FP32 dims: 3 optional: true } '
    with running("onnxruntime", context(path), spec(listed)) as instance:
        assert_same(instance.execute({"X": x, "W": np.ones(3, np.float32)}, ("Y",))["Y"], x + 1)


def test_scalars_are_served_as_one_element(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", (), ())
    one = tensors("TYPE_FP32 dims: 1", "TYPE_FP32 dims: 1", batch=0)
    with running("onnxruntime", context(path), spec(one)) as instance:
        result = instance.execute({"X": np.array([4], np.float32)}, ("Y",))
        assert_same(result["Y"], np.array([8], np.float32))


def test_a_scalar_may_have_several_dims_of_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("Range", ["A", "B", "C"], ["Y"]), helper.make_node("Mul", ["A", "B"], ["Z"])]
    scalar = ("INT64", ())
    path = onnx_models.save(
        tmp_path / "m.onnx", nodes, {"A": scalar, "B": scalar, "C": scalar}, {"Y": ("INT64", ("N",)), "Z": scalar}
    )
    text = "".join(f'input {{ name: "{name}" data_type: TYPE_INT64 dims: [ 1, 1 ] }} ' for name in "ABC")
    text += (
        'output { name: "Y" data_type: TYPE_INT64 dims: -1 } output { name: "Z" data_type: TYPE_INT64 dims: [ 1, 1 ] }'
    )
    given = {name: np.array([[value]]) for name, value in (("A", 2), ("B", 8), ("C", 3))}
    with running("onnxruntime", context(path), spec(text)) as instance:
        result = instance.execute(given, ("Y", "Z"))
        assert_same(result["Y"], np.array([2, 5]))
        assert_same(result["Z"], np.array([[16]]))


def test_a_scalar_has_one_element(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx", (), ())
    text = refusal(path, tensors("TYPE_FP32 dims: 2", "TYPE_FP32 dims: 2", batch=0))
    assert "input 'X': the configuration says [2], the model has a scalar; write dims: [ 1 ]" in text


def test_text_that_is_not_utf8_is_the_callers_error(tmp_path: Path) -> None:
    path = onnx_models.echo(tmp_path / "m.onnx", "BYTES", ("N",))
    strings = ECHO.format("TYPE_STRING").replace("max_batch_size: 8", "").replace("dims: 3", "dims: -1")
    good = np.array([b"a", "é\0".encode(), b""], object)
    bad = np.array([b"fine", b"\xff\xfe"], object)
    with running("onnxruntime", context(path), spec(strings)) as instance:
        with pytest.raises(InvalidArgumentError, match="input 'A': element 1 is not UTF-8 text"):
            instance.execute({"A": bad, "B": bad}, ("X",))
        assert_same(instance.execute({"A": good, "B": good}, ("X",))["X"], good)


def mixed(path: Path, types: dict[str, str]) -> tuple[Path, str]:
    """A model that gives each input back under its name in small letters, and its configuration."""
    nodes = [helper.make_node("Identity", [name], [name.lower()]) for name in types]
    outputs = {name.lower(): (wire, ("N", 2)) for name, wire in types.items()}
    onnx_models.save(path, nodes, {name: (wire, ("N", 2)) for name, wire in types.items()}, outputs)
    kinds = {name: BY_WIRE[wire].config for name, wire in types.items()}
    text = "".join(f'input {{ name: "{n}" data_type: {k} dims: 2 }} ' for n, k in kinds.items())
    text += "".join(f'output {{ name: "{n.lower()}" data_type: {k} dims: 2 }} ' for n, k in kinds.items())
    return path, "max_batch_size: 4 " + text


def test_bfloat16_beside_other_types_and_in_an_empty_batch(tmp_path: Path) -> None:
    types = {"A": "BF16", "B": "BOOL", "C": "INT64"}
    path, text = mixed(tmp_path / "m.onnx", types)
    inputs = {name: values(wire, (3, 2)) for name, wire in types.items()}
    with running("onnxruntime", context(path), spec(text)) as instance:
        result = instance.execute(inputs, ("c", "a", "b"))
        for name, array in inputs.items():
            assert_same(result[name.lower()], array)
        empty = instance.execute({name: array[:0] for name, array in inputs.items()}, ("a", "b"))
        assert_same(empty["a"], inputs["A"][:0])


def test_bfloat16_beside_strings_is_refused(tmp_path: Path) -> None:
    text = refusal(*mixed(tmp_path / "m.onnx", {"A": "BF16", "B": "BYTES"}))
    assert "TYPE_STRING (input 'B')" in text and "TYPE_BF16 (tensor 'A')" in text


def test_a_sequence_output_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    sequence = helper.make_tensor_sequence_value_info("S", onnx.TensorProto.FLOAT, None)
    onnx_models.save(path, [helper.make_node("SequenceConstruct", ["X"], ["S"])], {"X": ("FP32", (3,))}, {})
    model = onnx.load(path)
    model.graph.output.append(sequence)
    onnx.save(model, path)
    io = 'input { name: "X" data_type: TYPE_FP32 dims: 3 } output { name: "S" data_type: TYPE_FP32 dims: 3 } '
    assert "seq(tensor(float)) is not a tensor type that can be served" in refusal(path, io)


def test_a_failing_run_carries_the_frameworks_text(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    model = spec(tensors("TYPE_FP32 dims: -1"))
    with (
        running("onnxruntime", context(path), model) as instance,
        pytest.raises(BackendError, match="Got invalid dimensions for input: X"),
    ):
        instance.execute({"X": np.ones((1, 4), np.float32)}, ("Y",))


# Files


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert f"there is no file {tmp_path / 'model.onnx'}" in refusal(tmp_path / "model.onnx", DOUBLE)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"this is no model at all", "INVALID_PROTOBUF"), (None, "INVALID_PROTOBUF")],
)
def test_a_broken_file_is_named_with_the_reason(
    tmp_path: Path, content: bytes | None, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    path = onnx_models.double(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-7] if content is None else content)
    text = refusal(path, DOUBLE)
    assert str(path) in text and message in text and "again" in text and "\n" not in text
    assert capfd.readouterr().out == ""


def test_an_unknown_operator_is_reported(tmp_path: Path) -> None:
    io = {"X": ("FP32", ("N", 3))}, {"Y": ("FP32", ("N", 3))}
    path = onnx_models.save(tmp_path / "m.onnx", [helper.make_node("NoSuchOperator", ["X"], ["Y"])], *io)
    assert "NoSuchOperator" in refusal(path, DOUBLE)


def test_an_opset_of_a_later_onnxruntime_is_reported(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.opset_import[0].version = 999
    onnx.save(model, path)
    text = refusal(path, DOUBLE)
    assert str(path) in text and "Opset 999" in text and "\n" not in text and ".h:" not in text
    assert f"the model is newer than onnxruntime {onnxruntime.__version__}; update onnxruntime" in text


def test_a_format_of_a_later_onnx_is_reported(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.ir_version = 999
    onnx.save(model, path)
    text = refusal(path, DOUBLE)
    assert "failed:Unsupported model IR version: 999, max supported IR version" in text
    assert f"newer than onnxruntime {onnxruntime.__version__}; update onnxruntime" in text


def test_an_operator_of_another_package_is_reported(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.node[0].domain = "com.mine"
    model.opset_import.add(domain="com.mine", version=1)
    onnx.save(model, path)
    text = refusal(path, DOUBLE)
    assert "com.mine:Add" in text and "name the library that has it with model_operations { op_library" in text


def with_external_weights(path: Path) -> Path:
    io = {"X": ("FP32", ("N", 3))}, {"Y": ("FP32", ("N", 3))}
    onnx_models.save(path, [helper.make_node("MatMul", ["X", "W"], ["Y"])], *io, {"W": np.eye(3, dtype=np.float32) * 2})
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (path.parent / "weights.bin").stat().st_size
    return path


@pytest.mark.parametrize("inner", ["model.onnx", "exported.onnx"])
def test_a_folder_with_external_weights(tmp_path: Path, inner: str) -> None:
    folder = with_external_weights(tmp_path / "model.onnx" / inner).parent
    x = np.ones((1, 3), np.float32)
    with running("onnxruntime", context(folder), spec(DOUBLE)) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x * 2)


def test_missing_external_weights_are_reported(tmp_path: Path) -> None:
    path = with_external_weights(tmp_path / "model.onnx")
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in refusal(path, DOUBLE)


def test_a_folder_without_one_clear_model_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model.onnx"
    folder.mkdir()
    assert "it has none; rename one to model.onnx" in refusal(folder, DOUBLE)
    for name in ("a.onnx", "b.onnx"):
        onnx_models.double(folder / name)
    assert "it has a.onnx, b.onnx" in refusal(folder, DOUBLE)


# Parameters and threads


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_thread_count", "many"),
        ("intra_op_thread_count", "-1"),
        ("inter_op_thread_count", "1.5"),
        ("execution_mode", "2"),
        ("enable_mem_arena", "maybe"),
        ("enable_mem_pattern", "2"),
        ("memory.enable_memory_arena_shrinkage", "cpu"),
        ("session.intra_op.allow_spinning", "yes"),
    ],
)
def test_a_bad_parameter_is_named(tmp_path: Path, name: str, value: str) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx"), DOUBLE + parameter(name, value))
    assert f"parameter '{name}' is \"{value}\", expected" in text


def test_an_unknown_graph_level_is_refused(tmp_path: Path) -> None:
    text = refusal(onnx_models.double(tmp_path / "m.onnx"), DOUBLE + "optimization { graph { level: 7 } } ")
    assert "level: 7" in text and "expected -1 (basic)" in text


@pytest.mark.parametrize(
    "extra",
    [
        parameter("execution_mode", "1") + parameter("inter_op_thread_count", "2"),
        parameter("enable_mem_arena", "0") + parameter("enable_mem_pattern", "0"),
        parameter("memory.enable_memory_arena_shrinkage", "cpu:0"),
        parameter("session.intra_op.allow_spinning", "1") + parameter("intra_op_thread_count", "2"),
        parameter("session.use_device_allocator_for_initializers", "1"),
        *(f"optimization {{ graph {{ level: {level} }} }} " for level in (-1, 0, 1, 2)),
    ],
)
def test_parameters_change_no_answer(tmp_path: Path, extra: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with running("onnxruntime", context(onnx_models.double(tmp_path / "m.onnx")), spec(DOUBLE + extra)) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x * 2)


@pytest.mark.parametrize(
    ("devices", "extra", "absent"),
    [("gpu:0", "", "gpu:0"), ("cpu:0;gpu:0", "", "gpu:0"), ("cpu:0", parameter("enable_mem_arena", "0"), "cpu:0")],
)
def test_memory_of_a_device_that_is_not_kept_is_not_released(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, devices: str, extra: str, absent: str
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = DOUBLE + parameter("memory.enable_memory_arena_shrinkage", devices) + extra
    with running("onnxruntime", context(onnx_models.double(tmp_path / "m.onnx")), spec(text)) as instance:
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x * 2)
    assert f"has no effect on {absent}: no instance keeps memory there" in caplog.text


def test_an_accelerator_is_refused_by_name(tmp_path: Path) -> None:
    path = onnx_models.double(tmp_path / "m.onnx")
    for kind in ("gpu", "cpu"):
        listed = f'optimization {{ execution_accelerators {{ {kind}_execution_accelerator {{ name: "fast" }} }} }} '
        assert "unknown Execution Accelerator 'fast' is requested" in refusal(path, DOUBLE + listed)


def test_a_gpu_is_refused_without_a_provider(tmp_path: Path) -> None:
    text = DOUBLE + 'instance_group { name: "g" kind: KIND_GPU count: 1 gpus: 0 }'
    assert "write kind: KIND_CPU" in refusal(onnx_models.double(tmp_path / "m.onnx"), text)


def thread_count() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads through /proc")
@pytest.mark.parametrize(
    ("cores", "instances", "extra", "threads"),
    [
        (2, 2, "", 0),
        (4, 1, "", 3),
        (4, 2, "", 2),
        (8, 2, parameter("intra_op_thread_count", "1"), 0),
        (1, 1, parameter("intra_op_thread_count", "3"), 2),
    ],
)
def test_cores_are_divided_among_the_instances(
    tmp_path: Path, cores: int, instances: int, extra: str, threads: int
) -> None:
    model = spec(DOUBLE + extra + f'instance_group {{ name: "g" kind: KIND_CPU count: {instances} }}')
    before = thread_count()
    with started("onnxruntime", context(onnx_models.double(tmp_path / "m.onnx"), cores), model) as backend:
        made = [backend.create_instance(group(model), i) for i in range(instances)]
        assert thread_count() - before == threads
        for instance in made:
            instance.close()


GLOBAL_POOL = """
import sys, numpy as np
from pathlib import Path
from support.backend_contract import context, running, spec
from backends.test_onnxruntime import DOUBLE, thread_count
path, x = Path(sys.argv[1]), np.ones((1, 3), np.float32)
with running("onnxruntime", context(path), spec(DOUBLE)) as own:
    before = thread_count()
    for count in ("3", "3", "2"):
        at = context(path, enable_global_threadpool="1")
        at.backend_config["intra_op_thread_count"] = count
        with running("onnxruntime", at, spec(DOUBLE)) as instance:
            assert instance.execute({"X": x}, ("Y",))["Y"].tolist() == [[2, 2, 2]]
            print(thread_count() - before)
    with running("onnxruntime", context(path), spec(DOUBLE)) as plain:
        assert plain.execute({"X": x}, ("Y",))["Y"].tolist() == [[2, 2, 2]]
    assert own.execute({"X": x}, ("Y",))["Y"].tolist() == [[2, 2, 2]]
"""


@pytest.mark.slow
def test_the_global_pool_is_made_once_for_all_sessions(tmp_path: Path) -> None:
    # The pool lasts as long as its process, so this one has its own.
    path = onnx_models.double(tmp_path / "m.onnx")
    tests = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", GLOBAL_POOL, str(path)],
        cwd=tests,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(set(done.stdout.split())) == 1
    assert "stays at 3 intra-op and 1 inter-op threads; it cannot be changed to 2 and 1" in done.stderr


# A real network, also in comparison with the framework called directly


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "resnet50"])
def test_real_networks_answer_as_the_framework_itself(tmp_path: Path, name: str) -> None:
    from support.networks import demo_models, images, session, with_random_weights

    network = next(n for n in demo_models.NETWORKS if n.name == name)
    model = with_random_weights(network.load(), seed=1)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    direct = session(path)
    (given,), (made,) = direct.get_inputs(), direct.get_outputs()
    text = f"""input {{ name: "{given.name}" data_type: TYPE_FP32 dims: [ 1, 3, 224, 224 ] }}
    output {{ name: "{made.name}" data_type: TYPE_FP32 dims: {list(made.shape)} }} """
    with running("onnxruntime", context(path), spec(text)) as instance:
        for image in images(3, seed=2):
            feed = {given.name: image[None]}
            found = instance.execute(feed, (made.name,))[made.name]
            np.testing.assert_array_equal(found, direct.run([made.name], feed)[0])
