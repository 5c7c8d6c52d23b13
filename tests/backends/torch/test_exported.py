"""Archives of ``torch.export`` that run as they are: signatures, names, checks. Results equal the program's own."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
if not hasattr(torch.export, "pt2_archive") and torch.__version__ < "2.8":
    pytest.skip("this torch writes archives of an older form", allow_module_level=True)

from naiad.backends import registry  # noqa: E402
from naiad.config.messages import ModelConfig  # noqa: E402
from naiad.config.spec import ModelSpec  # noqa: E402
from naiad.errors import InvalidArgumentError, ModelLoadError  # noqa: E402
from support import torch_programs  # noqa: E402
from support.backend_contract import context, running, spec, started  # noqa: E402

AS_IT_IS = 'platform: "torch_aoti" parameters { key: "COMPILE" value { string_value: "false" } } '
X = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
A, B = np.ones((2, 3), np.float32), np.full((2, 3), 4, np.float32)
SCALE = np.full((2, 1), 10, np.float32)


def entry(role: str, name: str, wire: str = "FP32", dims: str = "-1") -> str:
    return f'{role} {{ name: "{name}" data_type: TYPE_{wire} dims: [ {dims} ] }} '


ONE = entry("input", "x", dims="4") + entry("output", "y", dims="3")


def vector(size: int) -> ModelSpec:
    """A model of one input x and one output y of a fixed size."""
    return spec(AS_IT_IS + entry("input", "x", dims=str(size)) + entry("output", "y", dims=str(size)))


def refusal(path: Path, text: str) -> str:
    with pytest.raises(ModelLoadError) as caught, started("pytorch", context(path), spec(AS_IT_IS + text)):
        pass
    return str(caught.value)


def completed(path: Path, text: str = "") -> Any:
    from google.protobuf import text_format

    config = text_format.Parse(f'name: "m" {text or AS_IT_IS}', ModelConfig())
    backend = registry.create("pytorch", context(path))
    try:
        backend.complete(config)
    finally:
        backend.close()
    return config


def tensors(entries: Any) -> list[tuple[str, list[int]]]:
    return [(item.name, list(item.dims)) for item in entries]


def direct(path: Path, *inputs: np.ndarray, **named: np.ndarray) -> Any:
    with torch.inference_mode():
        module = torch.export.load(path).module()
        return module(*map(torch.from_numpy, inputs), **{k: torch.from_numpy(v) for k, v in named.items()})


# Auto-complete


@pytest.mark.slow
def test_inputs_outputs_and_batching_are_completed(tmp_path: Path) -> None:
    found = completed(torch_programs.linear(tmp_path / "model.pt2"))
    assert tensors(found.input) == [("INPUT__0", [4])] and tensors(found.output) == [("OUTPUT__0", [3])]
    assert found.max_batch_size == 4 and found.HasField("dynamic_batching")


def test_fixed_shapes_are_completed_without_a_batch(tmp_path: Path) -> None:
    path = torch_programs.save(tmp_path / "model.pt2", torch_programs.Linear(), torch.zeros(2, 4))
    found = completed(path)
    assert found.max_batch_size == 0 and tensors(found.input) == [("INPUT__0", [2, 4])]


def test_a_limited_batch_dimension_limits_max_batch_size(tmp_path: Path) -> None:
    dynamic = {"x": {0: torch.export.Dim("batch", max=3)}}
    path = torch_programs.save(tmp_path / "m.pt2", torch_programs.Linear(), torch.zeros(2, 4), dynamic=dynamic)
    assert completed(path).max_batch_size == 3
    text = refusal(path, "max_batch_size: 8 " + ONE)
    assert "max_batch_size: 8" in text and "x.size()[0] <= 3" in text


def test_first_axes_of_different_sizes_are_no_batch(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x * 2, y * 2

    path = torch_programs.save(
        *(tmp_path / "m.pt2", Two(), torch.zeros(2), torch.zeros(5)),
        dynamic={"x": {0: torch.export.Dim("a")}, "y": {0: torch.export.Dim("b")}},
    )
    assert completed(path).max_batch_size == 0


# Names and results


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (("INPUT__0", "INPUT__1", "INPUT__2"), ("OUTPUT__0", "OUTPUT__1", "OUTPUT__2")),
        (("ARGS[0]", "ARGS[1]", "KWARGS[scale]"), ("RESULT[sum]", "RESULT[more][0]", "RESULT[more][2]")),
        (("x", "y", "scale"), ("first", "second", "third")),
        (("one", "two", "three"), ("OUTPUT__0", "OUTPUT__1", "OUTPUT__2")),
    ],
)
def test_names_of_the_reference_of_arguments_or_in_order(
    tmp_path: Path, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    path = torch_programs.nested(tmp_path / "model.pt2")
    text = AS_IT_IS + "max_batch_size: 8 "
    text += "".join(entry("input", name, dims=dims) for name, dims in zip(inputs, ("3", "3", "1"), strict=True))
    text += "".join(entry("output", n, w, "3") for n, w in zip(outputs, ("FP32", "FP32", "INT64"), strict=True))
    with running("pytorch", context(path), spec(text)) as instance:
        found = instance.execute(dict(zip(inputs, (A, B, SCALE), strict=True)), outputs)
    expected = direct(path, A, B, scale=SCALE)
    for name, value in zip(outputs, (expected["sum"], expected["more"][0], expected["more"][2]), strict=True):
        np.testing.assert_array_equal(found[name], value.numpy())


def test_names_may_be_in_another_order(tmp_path: Path) -> None:
    path = torch_programs.nested(tmp_path / "model.pt2")
    text = AS_IT_IS + "max_batch_size: 8 " + entry("input", "KWARGS[scale]", dims="1")
    text += entry("input", "ARGS[1]", dims="3") + entry("input", "ARGS[0]", dims="3")
    text += entry("output", "RESULT[more][0]", dims="3")
    with running("pytorch", context(path), spec(text)) as instance:
        found = instance.execute({"ARGS[0]": A, "ARGS[1]": B, "KWARGS[scale]": SCALE}, ("RESULT[more][0]",))
    np.testing.assert_array_equal(found["RESULT[more][0]"], A - B)


@pytest.mark.parametrize(
    "names", [("x",), ("x", "y", "w"), ("ARGS[0]", "ARGS[1]", "ARGS[2]"), ("a__0", "a__1", "a__5")]
)
def test_inputs_that_do_not_fit_are_refused_with_all_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = torch_programs.nested(tmp_path / "model.pt2")
    text = refusal(path, "".join(entry("input", name) for name in names) + entry("output", "OUTPUT__0"))
    assert all(f"'{name}'" in text for name in names)
    assert "'INPUT__0' or 'ARGS[0]' or 'x'" in text and "'INPUT__2' or 'KWARGS[scale]' or 'scale'" in text


def test_a_constant_is_no_output(tmp_path: Path) -> None:
    path = torch_programs.nested(tmp_path / "model.pt2")
    inputs = "".join(entry("input", f"INPUT__{i}", dims=dims) for i, dims in enumerate(("3", "3", "1")))
    text = refusal(
        path, "max_batch_size: 8 " + inputs + entry("output", "RESULT[more][1]") + entry("output", "RESULT[sum]")
    )
    assert "'RESULT[more][1]'" in text and "'OUTPUT__1' or 'RESULT[more][0]'" in text


def test_a_scalar_has_one_element(tmp_path: Path) -> None:
    path = torch_programs.save(tmp_path / "model.pt2", torch_programs.Scalar(), torch.tensor(1.0))
    assert tensors(completed(path).input) == [("INPUT__0", [1])]
    with running("pytorch", context(path), vector(1)) as it:
        assert it.execute({"x": np.array([3], np.float32)}, ("y",))["y"].tolist() == [6.0]


# Memory


def test_an_input_is_not_written_to(tmp_path: Path) -> None:
    path = torch_programs.save(tmp_path / "model.pt2", torch_programs.InPlace(), torch.zeros(3))
    given = np.ones(3, np.float32)
    with running("pytorch", context(path), vector(3)) as it:
        assert it.execute({"x": given}, ("y",))["y"].tolist() == [4.0, 4.0, 4.0]
    assert given.tolist() == [1.0, 1.0, 1.0]


def test_every_instance_has_buffers_of_its_own(tmp_path: Path) -> None:
    path = torch_programs.save(tmp_path / "model.pt2", torch_programs.Counting(), torch.zeros(1))
    model = vector(1)
    zero = {"x": np.zeros(1, np.float32)}
    with started("pytorch", context(path), model) as backend:
        first, second = (backend.create_instance(model.instance_groups[0], 0) for _ in range(2))
        assert [first.execute(zero, ("y",))["y"].item() for _ in range(3)] == [1.0, 2.0, 3.0]
        assert second.execute(zero, ("y",))["y"].item() == 1.0


# Shapes


def test_shapes_that_the_program_does_not_take_are_refused_in_the_request(tmp_path: Path) -> None:
    path = torch_programs.guarded(tmp_path / "model.pt2")
    text = AS_IT_IS + entry("input", "x") + entry("input", "y") + entry("output", "z")
    with running("pytorch", context(path), spec(text)) as instance:
        given = {"x": np.ones(5, np.float32), "y": np.ones(5, np.float32)}
        assert instance.execute(given, ("z",))["z"].tolist() == [3.0] * 5
        with pytest.raises(InvalidArgumentError, match=r"'x' \[5\], 'y' \[4\]; it needs y.size\(\)\[0\] == x.size"):
            instance.execute({**given, "y": np.ones(4, np.float32)}, ("z",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (entry("input", "x", "INT32", "4"), r"says TYPE_INT32, the model has TYPE_FP32 \(torch.float32\)"),
        (entry("input", "x", dims="5"), r"the model expects .*shape \[-1,4\].*shape \[-1,5\]"),
    ],
)
def test_a_configuration_that_contradicts_the_signature(tmp_path: Path, text: str, words: str) -> None:
    path = torch_programs.linear(tmp_path / "model.pt2")
    found = refusal(path, "max_batch_size: 8 " + text + entry("output", "y", dims="3"))
    assert re.search(words, found)


def test_a_batch_of_a_fixed_program_is_refused(tmp_path: Path) -> None:
    path = torch_programs.save(tmp_path / "model.pt2", torch_programs.Linear(), torch.zeros(2, 4))
    assert "is not variable, so it cannot batch" in refusal(path, "max_batch_size: 8 " + ONE)


def test_an_optional_input_is_refused(tmp_path: Path) -> None:
    path = torch_programs.linear(tmp_path / "model.pt2")
    given = 'input { name: "x" data_type: TYPE_FP32 dims: 4 optional: true } '
    assert "'x' is optional" in refusal(path, "max_batch_size: 8 " + given + entry("output", "y", dims="3"))


# Files


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive with the content of its parts changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(name, content))
    return path


class Touches:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


def test_a_pickle_in_the_examples_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "was-run"

    def change(name: str, content: bytes) -> bytes:
        return pickle.dumps(Touches(trace)) if "/sample_inputs/" in name else content

    path = rewritten(torch_programs.linear(tmp_path / "model.pt2"), change)
    text = refusal(path, ONE)
    assert "as pickles (data/sample_inputs/model.pt)" in text and "can run any code" in text
    assert not trace.exists()


def test_a_pickle_as_weight_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "was-run"

    def change(name: str, content: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            return content.replace(b'"use_pickle": false', b'"use_pickle": true')
        return pickle.dumps(Touches(trace)) if "/weights/weight_" in name else content

    path = rewritten(torch_programs.linear(tmp_path / "model.pt2"), change)
    assert "as pickles (weight)" in refusal(path, ONE)
    assert not trace.exists()


def test_an_archive_of_another_torch_names_both_versions(tmp_path: Path) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return content
        text = content.decode().replace(torch.__version__, "9.9.9")
        return re.sub(r'"schema_version": \{"major": \d+', '"schema_version": {"major": 999', text).encode()

    text = refusal(rewritten(torch_programs.linear(tmp_path / "model.pt2"), change), ONE)
    assert f"torch {torch.__version__} cannot load" in text and "which torch 9.9.9 has written" in text
    assert "schema version SchemaVersion(major=999" in text and "install torch 9.9.9, or export the model again" in text


def test_an_operator_that_torch_does_not_have_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def change(name: str, content: bytes) -> bytes:
        return (
            content.replace(b"torch.ops.aten.", b"torch.ops.mine.") if name.endswith("models/model.json") else content
        )

    text = refusal(rewritten(torch_programs.linear(tmp_path / "model.pt2"), change), ONE)
    assert re.search(r"this torch has no operator mine\.\w+; export the model without it", text)
    assert not [record for record in caplog.records if record.name == "torch.export"]


def test_weights_that_an_archive_lacks_are_named(tmp_path: Path) -> None:
    path = torch_programs.linear(tmp_path / "model.pt2")
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist() if not name.endswith("weights/weight_0")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    assert "it has no part data/weights/weight_0; the file is incomplete" in refusal(path, ONE)


def test_a_platform_that_contradicts_the_file(tmp_path: Path) -> None:
    path = torch_programs.linear(tmp_path / "model.pt")
    model = spec('platform: "pytorch_libtorch" ' + ONE)
    with pytest.raises(ModelLoadError) as caught, started("pytorch", context(path), model):
        pass
    assert 'has platform: "pytorch_libtorch"' in str(caught.value)
    assert "is an archive of torch.export" in str(caught.value) and 'write platform: "torch_aoti"' in str(caught.value)


def test_it_runs_as_it_is_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    path = torch_programs.linear(tmp_path / "model.pt2")
    with running("pytorch", context(path), spec('platform: "torch_aoti" max_batch_size: 8 ' + ONE)) as instance:
        found = instance.execute({"x": X}, ("y",))["y"]
    np.testing.assert_array_equal(found, direct(path, X).numpy())
    assert "runs as it is, not compiled: there is no C++ compiler; install one (apt-get install g++)" in caplog.text
