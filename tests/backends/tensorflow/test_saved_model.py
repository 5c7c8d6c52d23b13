from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.backends import registry
from naiad.config.freeze import freeze
from naiad.config.spec import ModelSpec
from naiad.errors import BackendError, ConfigError, InvalidArgumentError, ModelLoadError
from support import tensorflow_models as models
from support.backend_contract import (
    assert_same,
    config,
    context,
    group,
    running,
    started,
)
from support.tensorflow_models import tf

NAME = "tensorflow"
PLATFORM = 'platform: "tensorflow_savedmodel" backend: "tensorflow" '
ECHO = """max_batch_size: 8
input [ {{ name: "A" data_type: {0} dims: 3 }}, {{ name: "B" data_type: {0} dims: 3 }} ]
output [ {{ name: "X" data_type: {0} dims: 3 }}, {{ name: "Y" data_type: {0} dims: 3 }} ] """
ONE_CPU = 'instance_group [ { name: "m" kind: KIND_CPU count: 1 } ]'


def spec(text: str, platform: str = PLATFORM) -> ModelSpec:
    return freeze(config(platform + text + ("" if "instance_group" in text else ONE_CPU)))


def parameter(name: str, value: str) -> str:
    return f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }} '


def tensors(x: str = "TYPE_FP32 dims: 3", y: str = "TYPE_FP32 dims: 3", batch: int = 8, name: str = "X") -> str:
    return f'max_batch_size: {batch} input {{ name: "{name}" data_type: {x} }} output {{ name: "Y" data_type: {y} }} '


def completed(path: Path, text: str = "", **settings: str) -> Any:
    message = config(PLATFORM + text)
    backend = registry.create(NAME, context(path, **settings))
    backend.complete(message)
    backend.close()
    return message


def shape_of(entries: Any) -> list[tuple[str, str, list[int]]]:
    enum = entries[0].DESCRIPTOR.fields_by_name["data_type"].enum_type
    return [(t.name, enum.values_by_number[t.data_type].name, list(t.dims)) for t in entries]


def answer(path: Path, text: str, inputs: Mapping[str, np.ndarray], output: str = "Y") -> np.ndarray:
    with running(NAME, context(path), spec(text)) as instance:
        return instance.execute(inputs, (output,))[output]


def refusal(path: Path, text: str, **settings: str) -> str:
    with pytest.raises(ModelLoadError) as caught, started(NAME, context(path, **settings), spec(text)):
        pass
    return str(caught.value)


# Completion


def test_an_empty_configuration_is_filled_in(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = models.save(
        tmp_path / "m",
        lambda X, W: {"Y": tf.reduce_sum(X, axis=2), "Z": W},
        X=("FP32", (None, 3, None)),
        W=("BYTES", (None, 2)),
    )
    with caplog.at_level(logging.DEBUG, "naiad"):
        message = completed(path)
    assert message.max_batch_size == 4
    assert message.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert shape_of(message.input) == [("W", "TYPE_STRING", [2]), ("X", "TYPE_FP32", [3, -1])]
    assert shape_of(message.output) == [("Y", "TYPE_FP32", [3]), ("Z", "TYPE_STRING", [2])]
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG], "nothing is wrong"


def test_the_default_batch_size_is_a_setting(tmp_path: Path) -> None:
    path = models.double(tmp_path / "m")
    assert completed(path, default_max_batch_size="16").max_batch_size == 16
    alone = completed(path, default_max_batch_size="1")
    assert (alone.max_batch_size, alone.WhichOneof("scheduling_choice")) == (1, None)


def test_a_fixed_first_axis_does_not_batch(tmp_path: Path) -> None:
    path = models.double(tmp_path / "m", shape=(2, 3))
    message = completed(path)
    assert (message.max_batch_size, shape_of(message.input)) == (0, [("X", "TYPE_FP32", [2, 3])])
    with pytest.raises(
        ConfigError,
        match="unable to autofill for 'm', configuration specified max-batch 8 but model signature does not support",
    ):
        completed(path, "max_batch_size: 8")


def test_listed_tensors_stay_and_get_a_batch_size(tmp_path: Path) -> None:
    path = models.echo(tmp_path / "m")
    listed = completed(path, 'output { name: "Y" data_type: TYPE_FP32 dims: 3 }')
    assert shape_of(listed.output) == [("Y", "TYPE_FP32", [3])]
    assert [t.name for t in listed.input] == ["A", "B"]
    whole = completed(path, ECHO.format("TYPE_FP32").replace("max_batch_size: 8", ""))
    assert whole.max_batch_size == 4
    full = completed(
        path, ECHO.format("TYPE_FP32").replace("max_batch_size: 8", "").replace("dims: 3", "dims: [-1, 3]")
    )
    assert full.max_batch_size == 0


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ('output { name: "Y" }', ["A", "B"]),
        ('input { name: "B" } output { name: "Y" }', ["B", "A"]),
        ('input { name: "A" dims: 3 } output { name: "Y" data_type: TYPE_FP32 }', ["A", "B"]),
        ('max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 }', ["A", "B"]),
    ],
)
def test_what_listed_tensors_leave_open_is_filled_in(tmp_path: Path, text: str, inputs: list[str]) -> None:
    """Inputs that are not listed are added; outputs are not, and the model does not return them."""
    types = {"A": ("FP32", (None, 3)), "B": ("INT32", (None, 2))}
    path = models.save(tmp_path / "m", lambda A, B: {"Y": A * 2, "Z": B}, **types)
    message = completed(path, ONE_CPU + text)
    assert message.max_batch_size == (2 if "max_batch_size" in text else 4)
    dims = {"A": ("A", "TYPE_FP32", [3]), "B": ("B", "TYPE_INT32", [2])}
    assert shape_of(message.input) == [dims[name] for name in inputs]
    others = [] if "output" in text else [("Z", "TYPE_INT32", [2])]
    assert shape_of(message.output) == [("Y", "TYPE_FP32", [3]), *others]
    given = {"A": np.ones((2, 3), np.float32), "B": np.ones((2, 2), np.int32)}
    with running(NAME, context(path), freeze(message)) as instance:
        assert_same(instance.execute(given, ("Y",))["Y"], given["A"] * 2)


def test_a_listed_tensor_of_unknown_rank_needs_dims(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": X + 1}, X=("FP32", None))
    with pytest.raises(ConfigError, match="the model leaves the rank of input 'X' open; list the inputs"):
        completed(path, 'input { name: "X" } output { name: "Y" data_type: TYPE_FP32 dims: -1 }')


def test_a_completed_model_runs(tmp_path: Path) -> None:
    path, product = models.dense(tmp_path / "m")
    message = completed(path, ONE_CPU)
    x = np.random.default_rng(1).standard_normal((3, 8), np.float32)
    with running(NAME, context(path), freeze(message)) as instance:
        np.testing.assert_allclose(instance.execute({"X": x}, ("Y",))["Y"], x @ product, rtol=1e-5)


def test_a_batch_of_scalars_and_a_scalar_are_one_element(tmp_path: Path) -> None:
    batch = completed(models.double(tmp_path / "batch", shape=(None,)))
    assert (list(batch.input[0].dims), batch.input[0].HasField("reshape")) == ([1], True)
    alone = models.double(tmp_path / "scalar", shape=())
    message = completed(alone, ONE_CPU)
    assert (message.max_batch_size, shape_of(message.input)) == (0, [("X", "TYPE_FP32", [1])])
    with running(NAME, context(alone), freeze(message)) as instance:
        result = instance.execute({"X": np.array([4], np.float32)}, ("Y",))["Y"]
        assert_same(result, np.array([8], np.float32))


def test_a_scalar_text_is_one_element(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": tf.strings.join([X, "!"])}, X=("BYTES", ()))
    text = tensors("TYPE_STRING dims: 1", "TYPE_STRING dims: 1", batch=0)
    assert answer(path, text, {"X": np.array([b"a"], object)}).tolist() == [b"a!"]


def test_scalars_may_be_reshaped_by_the_configuration(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X, S: {"Y": X + X, "T": S}, X=("FP32", ()), S=("BYTES", ()))
    names = (("input", "X", "FP32"), ("input", "S", "STRING"), ("output", "Y", "FP32"), ("output", "T", "STRING"))
    text = " ".join(
        f'{role} {{ name: "{name}" data_type: TYPE_{kind} dims: 1 reshape {{ shape: [] }} }}'
        for role, name, kind in names
    )
    with running(NAME, context(path), spec(text)) as instance:
        given = {"X": np.array(3, np.float32), "S": np.array(b"abc", object)}
        found = instance.execute(given, ("Y", "T"))
    assert_same(found["Y"], np.array(6, np.float32))
    assert_same(found["T"], np.array(b"abc", object))


def test_a_tensor_of_unknown_rank_must_be_listed(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": X + 1}, X=("FP32", None))
    with pytest.raises(ConfigError, match="the model leaves the rank of input 'X' open; list the inputs"):
        completed(path)
    x = np.zeros((2, 3), np.float32)
    text = tensors("TYPE_FP32 dims: [ 2, 3 ]", "TYPE_FP32 dims: [ 2, 3 ]", batch=0)
    assert_same(answer(path, text, {"X": x}), x + 1)


def test_an_input_with_a_default_may_be_left_out_or_given(tmp_path: Path) -> None:
    module, ten = tf.Module(), tf.constant(10.0)

    @tf.function(
        input_signature=[tf.TensorSpec((None, 3), tf.float32, "X"), tf.TensorSpec((), tf.float32, "W")],
    )
    def call(X: Any, W: Any = ten) -> Any:
        return {"Y": X + W}

    module.call = call
    tf.saved_model.save(module, str(tmp_path / "m"), {"serving_default": call})
    x = np.zeros((2, 3), np.float32)
    unlisted = tensors("TYPE_FP32 dims: [ -1, 3 ]", "TYPE_FP32 dims: [ -1, 3 ]", batch=0)
    listed = unlisted + 'input { name: "W" data_type: TYPE_FP32 dims: 1 optional: true } '
    assert [t.name for t in completed(tmp_path / "m").input] == ["X"]
    assert_same(answer(tmp_path / "m", unlisted, {"X": x}), x + 10)
    with running(NAME, context(tmp_path / "m"), spec(listed)) as instance:
        assert_same(instance.execute({"X": x, "W": np.ones(1, np.float32)}, ("Y",))["Y"], x + 1)
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x + 10)


# Signatures and tags


def two_signatures(folder: Path) -> Path:
    more = models.function(lambda X: {"Y": X * 3}, X=("FP32", (None, 3)))
    less = models.function(lambda Z: {"Y": Z - 1}, Z=("INT32", (None, 2)))
    return models.save_signatures(folder, {"more": more, "serving_default": less})


def test_a_signature_is_chosen_by_name(tmp_path: Path) -> None:
    path = two_signatures(tmp_path / "m")
    assert shape_of(completed(path).input) == [("Z", "TYPE_INT32", [2])]
    chosen = parameter("TF_SIGNATURE_DEF", "more")
    assert shape_of(completed(path, chosen).input) == [("X", "TYPE_FP32", [3])]
    x = np.ones((2, 3), np.float32)
    assert_same(answer(path, tensors() + chosen, {"X": x}), x * 3)


def test_an_unknown_signature_shows_those_of_the_model(tmp_path: Path) -> None:
    text = refusal(two_signatures(tmp_path / "m"), tensors() + parameter("TF_SIGNATURE_DEF", "moore"))
    assert "unable to load model 'm', expected 'moore' signature, did you mean 'more'?" in text
    assert "the model has 'more', 'serving_default'; write one of them as parameter TF_SIGNATURE_DEF" in text


def test_without_the_usual_signature_another_one_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    call = models.function(lambda X: {"Y": X * 3}, X=("FP32", (None, 3)))
    path = models.save_signatures(tmp_path / "m", {"other": call})
    assert shape_of(completed(path).input) == [("X", "TYPE_FP32", [3])]
    assert "unable to find default serving signature 'serving_default', using signature 'other'" in caplog.text


def test_a_graph_is_chosen_by_its_tags(tmp_path: Path) -> None:
    path = models.tagged(tmp_path / "m", {"serve": 2, "serve,fast": 5, "other": 7})
    x = np.ones((2, 3), np.float32)
    assert_same(answer(path, tensors(), {"X": x}), x * 2)
    assert_same(answer(path, tensors() + parameter("TF_GRAPH_TAG", "other"), {"X": x}), x * 7)
    assert_same(answer(path, tensors() + parameter("TF_GRAPH_TAG", "fast, serve"), {"X": x}), x * 5)
    text = refusal(path, tensors() + parameter("TF_GRAPH_TAG", "train"))
    assert "unable to load model 'm', expected 'train' tag" in text
    assert "have the tags 'serve', 'fast,serve', 'other'; write one of them as parameter TF_GRAPH_TAG" in text


# The configuration against the model


def test_wrong_tensors_show_both_sides(tmp_path: Path) -> None:
    path = models.double(tmp_path / "m")
    text = refusal(path, tensors("TYPE_FP32 dims: 4", "TYPE_INT32 dims: 3"))
    assert "tensor 'X': the model expects 2 dimensions (shape [-1,3])" in text and "shape [-1,4])" in text
    assert "output 'Y': the configuration says TYPE_INT32, the model has TYPE_FP32 (DT_FLOAT)" in text
    missing = refusal(path, tensors(name="x"))
    assert "unexpected inference input 'x', allowed inputs are: " in missing


def test_a_scalar_does_not_batch(tmp_path: Path) -> None:
    text = refusal(models.double(tmp_path / "m", shape=()), tensors("TYPE_FP32 dims: 1", "TYPE_FP32 dims: 1"))
    assert "the model has a scalar; write dims: [ 1 ] and max_batch_size: 0" in text


def test_a_type_that_cannot_be_served_is_named(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": tf.cast(X, tf.complex64)}, X=("FP32", (None, 3)))
    assert "output 'Y': the model's type DT_COMPLEX64 is not a tensor type" in refusal(path, tensors())
    with pytest.raises(ModelLoadError, match="output 'Y' is DT_COMPLEX64, which cannot be served"):
        completed(path)


def test_shapes_that_only_the_model_fixes_are_checked(tmp_path: Path) -> None:
    path = models.double(tmp_path / "m")
    text = tensors("TYPE_FP32 dims: -1", "TYPE_FP32 dims: -1")
    with running(NAME, context(path), spec(text)) as instance:
        with pytest.raises(
            InvalidArgumentError, match=r"input 'X' has the shape \[2,4\], and the model takes \[-1,3\]"
        ):
            instance.execute({"X": np.ones((2, 4), np.float32)}, ("Y",))
        x = np.ones((2, 3), np.float32)
        assert_same(instance.execute({"X": x}, ("Y",))["Y"], x * 2)


def test_a_failing_run_says_the_frameworks_reason(tmp_path: Path) -> None:
    path = models.save(
        tmp_path / "m", lambda X: {"Y": tf.gather(tf.constant([1.0, 2.0, 3.0]), X)}, X=("INT32", (None, 1))
    )
    text = tensors("TYPE_INT32 dims: 1", "TYPE_FP32 dims: 1")
    with running(NAME, context(path), spec(text)) as instance:
        with pytest.raises(BackendError, match=r"tensorflow: indices\[0,0\] = 9 is not in \[0, 3\)"):
            instance.execute({"X": np.array([[9]], np.int32)}, ("Y",))
        assert instance.execute({"X": np.array([[1]], np.int32)}, ("Y",))["Y"].tolist() == [[2.0]]


def test_texts_are_bytes_of_any_kind(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": tf.strings.join([X, X])}, X=("BYTES", (None, 3)))
    given = np.array([[b"\xff\x00", "é".encode(), b""]], object)
    found = answer(path, tensors("TYPE_STRING dims: 3", "TYPE_STRING dims: 3"), {"X": given})
    assert found.tolist() == [[b"\xff\x00\xff\x00", "éé".encode(), b""]]
    assert found.dtype == object and all(type(item) is bytes for item in found.ravel())


def test_inputs_are_never_written_to(tmp_path: Path) -> None:
    path = models.save(tmp_path / "m", lambda X: {"Y": tf.negative(tf.identity(X))}, X=("FP32", (None, 3)))
    x = np.ones((64, 3), np.float32)
    assert_same(answer(path, tensors(batch=64), {"X": x}), -x)
    assert x.min() == 1


def test_a_model_that_counts_begins_at_its_saved_value(tmp_path: Path) -> None:
    module = tf.Module()
    module.count = tf.Variable(5.0)
    path = models.save(tmp_path / "m", lambda X: {"Y": module.count.assign_add(1.0) + X}, module, X=("FP32", (None, 3)))
    x = np.zeros((1, 3), np.float32)
    with running(NAME, context(path), spec(tensors())) as instance:
        first, second = (instance.execute({"X": x}, ("Y",))["Y"] for _ in range(2))
    assert (first.max(), second.max()) == (6, 7)


# Broken files


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert f"{tmp_path / 'none'} does not exist, expected the folder of a SavedModel" in refusal(
        tmp_path / "none", tensors()
    )
    (tmp_path / "empty").mkdir()
    assert "is no SavedModel: it has nothing, expected saved_model.pb" in refusal(tmp_path / "empty", tensors())


def test_files_that_are_damaged(tmp_path: Path) -> None:
    path, _ = models.dense(tmp_path / "m", 64)
    text = tensors("TYPE_FP32 dims: 64", "TYPE_FP32 dims: 64")
    data = next((path / "variables").glob("variables.data*"))
    whole = data.read_bytes()
    data.write_bytes(whole[:100])
    found = refusal(path, text)
    assert f"tensorflow cannot load {path}: Read less bytes than requested" in found
    assert "export or copy the whole folder again" in found
    data.unlink()
    assert f"tensorflow cannot load {path}" in refusal(path, text)
    data.write_bytes(whole)
    (path / "variables" / "variables.index").unlink()
    assert "has variables, and there is no file" in refusal(path, text)
    graph = path / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:-20])
    assert "is no SavedModel" in refusal(path, text) and "damaged or cut short" in refusal(path, text)
    graph.write_bytes(b"")
    assert "is empty; export or copy it again" in refusal(path, text)


def test_an_operator_that_tensorflow_lacks_is_named(tmp_path: Path) -> None:
    path = models.double(tmp_path / "m")
    graph = path / "saved_model.pb"
    # A name of the same length, so that the message stays valid.
    graph.write_bytes(graph.read_bytes().replace(b"AddV2", b"AddV9"))
    text = refusal(path, tensors())
    assert "Op type not registered 'AddV9'" in text
    assert "the installed TensorFlow has no operator AddV9" in text and "\n" not in text


def test_instances_share_a_session_up_to_a_number(tmp_path: Path) -> None:
    module = tf.Module()
    module.count = tf.Variable(0.0)
    path = models.save(tmp_path / "m", lambda X: {"Y": module.count.assign_add(1.0) + X}, module, X=("FP32", (None, 3)))
    x = np.zeros((1, 3), np.float32)

    def counts(text: str) -> list[float]:
        model = spec(tensors() + text + 'instance_group [ { name: "m" kind: KIND_CPU count: 4 } ]')
        with started(NAME, context(path), model) as backend:
            instances = [backend.create_instance(group(model), i) for i in range(4)]
            found = [float(i.execute({"X": x}, ("Y",))["Y"].max()) for i in instances]
            for instance in instances:
                instance.close()
        return found

    assert counts("") == [1, 2, 3, 4]
    assert counts(parameter("MAX_SESSION_SHARE_COUNT", "2")) == [1, 2, 1, 2]
    assert counts(parameter("MAX_SESSION_SHARE_COUNT", "1")) == [1, 1, 1, 1]
    assert 'is "0", expected a whole number of at least 1' in refusal(
        path, tensors() + parameter("MAX_SESSION_SHARE_COUNT", "0")
    )
