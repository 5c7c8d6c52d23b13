"""``naiad check`` on real models."""

from __future__ import annotations

import contextlib
import os
import pty
from collections.abc import Mapping
from pathlib import Path

import pytest

from naiad.backend_api.host_policy import NO_POLICIES, HostPolicies
from naiad.cli.check import run
from naiad.processes.affinity import Affinity, server_cores

OPERATORS = 'model_operations { op_library_filename: "x.so" }\n'
IDENTITY = """\
backend: "identity"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def model(repository: Path, name: str, text: str) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(text)
    return folder


def check(
    *paths: Path,
    settings: Mapping[str, Mapping[str, str]] | None = None,
    complete: bool = True,
    gpu_fallback: bool = False,
    policies: HostPolicies = NO_POLICIES,
) -> int:
    return run(
        paths,
        disable_auto_complete=not complete,
        model_config_name="",
        gpu_fallback=gpu_fallback,
        backend_config=settings or {},
        policies=policies,
    )


def onnx_model(path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 3]) for name in "XY"]
    node = onnx.helper.make_node("Relu", ["X"], ["Y"])
    graph = onnx.helper.make_graph([node], "relu", tensors[:1], tensors[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def test_a_model_that_is_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path, "echo", IDENTITY + "dynamic_batching { }\n")
    assert check(tmp_path) == 0
    shown = capsys.readouterr().out
    assert shown.startswith('echo: ok (version 1)\n  name: "echo"\n')
    assert "    preferred_batch_size: 4\n" in shown
    assert 'instance_group {\n    name: "echo"\n    kind: KIND_CPU\n    count: 1\n  }\n' in shown
    assert shown.endswith("\n1 model checked: 1 ok, 0 with problems\n")


def test_a_model_without_a_configuration_where_none_is_completed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "echo.identity" / "1").mkdir(parents=True)
    assert check(tmp_path) == 0
    capsys.readouterr()
    assert check(tmp_path, complete=False) == 1
    file = tmp_path / "echo.identity" / "config.pbtxt"
    assert f"failed to open text file for read {file}: No such file or directory; write it" in capsys.readouterr().out
    file.write_text(IDENTITY)
    assert check(tmp_path, complete=False) == 0


def test_every_problem_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path, "fine", IDENTITY)
    typos = IDENTITY + "dynamic_batching {\n  perferred_batch_size: [ 4 ]\n}\nzzz: 1\n"
    file = model(tmp_path, "typos", typos) / "config.pbtxt"
    rules = IDENTITY + "dynamic_batching { preferred_batch_size: [ 8 ] }\n" + OPERATORS
    other = model(tmp_path, "rules", rules) / "config.pbtxt"
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert (
        "typos: 2 problems\n"
        f"  {file}:6: unknown field 'perferred_batch_size' in 'dynamic_batching', "
        "did you mean 'preferred_batch_size'?\n"
        f"  {file}:8: unknown field 'zzz' in the model configuration\n"
    ) in shown
    assert (
        f"rules: 2 problems\n  {other}:5: dynamic batching preferred size must be <= max batch size for rules" in shown
    )
    assert f"  {other}:6: 'model_operations.op_library_filename' of model 'rules' asks for custom operator" in shown
    assert shown.endswith("3 models checked: 1 ok, 2 with problems (4 problems)\n")


def test_settings_without_effect_are_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'parameters { key: "gpu_mem_limit" value { string_value: "1000" } }\n'
    text += 'parameters { key: "team" value { string_value: "vision" } }\n'
    file = model(tmp_path, "relu", text) / "config.pbtxt"
    onnx_model(tmp_path / "relu" / "1" / "model.onnx")
    assert check(tmp_path) == 0
    assert capsys.readouterr().err == (
        f"warning: {file}:1: parameter 'gpu_mem_limit' of model 'relu' has no effect: it needs a GPU, and no instance "
        "group of the model is on one\n"
        f"warning: {file}:2: parameter 'team' of model 'relu' is unknown to the backend 'onnxruntime' and has no "
        "effect\n"
    )


def test_gpu_fallback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "instance_group [ { kind: KIND_GPU count: 2 gpus: [ 0 ] } ]\n"
    text += 'optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }\n'
    file = model(tmp_path, "relu", text) / "config.pbtxt"
    onnx_model(tmp_path / "relu" / "1" / "model.onnx")
    assert check(tmp_path) == 1
    refused = capsys.readouterr().out
    assert f"{file}:1: " in refused
    assert "no GPUs are available: write KIND_CPU, or KIND_AUTO for a GPU where there is one, or start" in refused
    assert check(tmp_path, gpu_fallback=True) == 0
    shown = capsys.readouterr()
    assert 'instance_group {\n    name: "relu_0"\n    kind: KIND_CPU\n    count: 2\n  }\n' in shown.out
    assert shown.err == (
        f"warning: {file}:1: instance group 0 of model relu has kind KIND_GPU, and runs as KIND_CPU because of "
        "--gpu-fallback=cpu\n"
        f"warning: {file}:2: accelerator 'tensorrt' of model relu is left out because of --gpu-fallback=cpu\n"
    )


def test_gpu_fallback_of_a_group_that_leaves_its_kind_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path, "relu", "instance_group [ { count: 3 gpus: [ 0, 1 ] } ]\n") / "config.pbtxt"
    onnx_model(tmp_path / "relu" / "1" / "model.onnx")
    assert check(tmp_path) == 1
    refused = capsys.readouterr().out
    assert f"{file}:1: " in refused
    assert "--gpu-fallback=cpu ignores the 'gpus' of such a group" in refused
    assert check(tmp_path, gpu_fallback=True) == 0
    shown = capsys.readouterr()
    assert 'instance_group {\n    name: "relu_0"\n    kind: KIND_CPU\n    count: 3\n  }\n' in shown.out
    assert shown.err == (
        f"warning: {file}:1: instance group 0 of model relu specifies one or more GPUs, and runs as KIND_CPU because "
        "of --gpu-fallback=cpu\n"
    )


@pytest.mark.skipif(not server_cores(), reason="the system does not say which cores there are")
def test_host_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path, "far", IDENTITY)
    model(tmp_path, "unset", IDENTITY + 'instance_group [ { kind: KIND_CPU host_policy: "left" } ]')
    policies = HostPolicies.of({"cpu": Affinity((700,)), "gpu_0": Affinity((800,))})
    assert check(tmp_path, policies=policies) == 1
    shown = capsys.readouterr()
    assert "far: 1 problem\n  model 'far': instance group '" in shown.out
    assert "' has the host policy 'cpu' with core 700, and the server may use " in shown.out
    assert "unset: ok" in shown.out
    text = "warning: model 'unset': instance group 'unset_0' has the host policy 'left', which no --host-policy sets ("
    assert shown.err.startswith(text + "set are: cpu, gpu_0)")


def test_a_warm_up_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = "data_type: TYPE_FP32 dims: [ 2, 2, 2 ] zero_data: true"
    model(tmp_path, "m", IDENTITY + f'model_warmup {{ batch_size: 1 inputs {{ key: "A" value {{ {data} }} }} }}\n')
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "m: 1 problem\n  [request id: <id_unknown>] unexpected shape for input 'A' for model 'm'" in shown


def test_problems_are_shown_also_when_the_backend_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "m", 'backend: "nonesuch"\nmax_batch_size: -1\n')
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "m: 2 problems\n" in shown
    assert "nonesuch" in shown
    assert "config.pbtxt:2: 'max_batch_size' must be non-negative value for m" in shown


def test_problems_of_the_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "empty: 1 problem\n  at least one version must be available" in shown
    assert "loop: 1 problem\n" in shown


def test_a_problem_of_all_versions_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "m", IDENTITY + "version_policy { all { } }\nmax_batch_size: 3\n")
    (folder / "2").mkdir()
    (folder / "config.pbtxt").write_text(IDENTITY + "version_policy { all { } }\n" + OPERATORS)
    assert check(tmp_path) == 1
    assert capsys.readouterr().out.count("custom operator libraries") == 1


@pytest.mark.parametrize("name", ["nowhere", "notes.doc"])
def test_paths_that_are_none(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.doc").touch()
    assert check(tmp_path / name) == 1
    assert f"error: '{tmp_path / name}'" in capsys.readouterr().out


def test_a_wrong_configuration_without_a_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model(tmp_path, "m", IDENTITY.replace("size: 4", "size: -1")) / "1").rmdir()
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "m: 2 problems" in shown
    assert f"{tmp_path}/m/config.pbtxt:2: 'max_batch_size'" in shown
    assert "found no version folder, expected a folder '1'" in shown


def test_a_folder_that_is_no_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_model(model(tmp_path, "m", "") / "1" / "model.onnx")
    assert check(tmp_path / "m" / "1") == 1
    assert "looks like version 1 of model 'm'" in capsys.readouterr().out


def read_terminal(descriptor: int) -> str:
    """All that was written to a terminal whose other end is closed; it comes in pieces."""
    shown = b""
    # The last read fails on Linux and is empty elsewhere.
    with contextlib.suppress(OSError):
        while piece := os.read(descriptor, 1 << 16):
            shown += piece
    return shown.decode()


def test_a_terminal_has_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model(tmp_path, "fine", IDENTITY)
    model(tmp_path, "wrong", "nmae: 3")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with capsys.disabled():
        ours, theirs = pty.openpty()
        with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
            patch.setattr("sys.stdout", stream)
            assert check(tmp_path) == 1
        shown = read_terminal(ours)
        os.close(ours)
    assert "fine: \x1b[32mok\x1b[0m (version 1)" in shown
    assert "wrong: \x1b[1;31m1 problem\x1b[0m" in shown


def test_an_empty_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path) == 1
    assert f"no models found in '{tmp_path}', expected a folder for each model" in capsys.readouterr().out


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("class TritonPythonModel:\n    def execute(self, requests)\n        pass\n", "SyntaxError: expected ':'"),
        ("import no_such_module\nclass TritonPythonModel:\n    pass\n", "No module named 'no_such_module'"),
        ("class TritonPythonModel:\n    def execute(self, requests):\n        pass\n", ""),
    ],
    ids=["syntax", "import", "fine"],
)
def test_the_code_of_a_python_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: str, problem: str, complete: bool
) -> None:
    """It is imported, also where it has nothing to add to the configuration."""
    folder = model(tmp_path, "code", IDENTITY.replace("identity", "python"))
    (folder / "1" / "model.py").write_text(source)
    assert check(tmp_path, complete=complete) == (1 if problem else 0)
    shown = capsys.readouterr().out
    assert (problem in shown) if problem else ("1 model checked: 1 ok" in shown)


def test_a_load_that_lasts(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No process starts within a millisecond."""
    monkeypatch.setattr("naiad.cli.check.SLOW_S", 0.001)
    python_model(tmp_path, "pass")
    assert check(tmp_path) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("still loading: code, for 0 s now\n")
    assert "still loading" not in shown.out


def test_a_python_model_without_execute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server loads it, as the reference does, and each of its requests fails."""
    folder = model(tmp_path, "code", IDENTITY.replace("identity", "python"))
    (folder / "1" / "model.py").write_text("class TritonPythonModel:\n    def predict(self, requests):\n        pass\n")
    assert check(tmp_path) == 0
    assert "model.py has no execute(self, requests), so that every request fails" in capsys.readouterr().err


MODEL = "class TritonPythonModel:\n    def execute(self, requests):\n        pass\n\n    def initialize(self, args):\n"


def python_model(repository: Path, initialize: str, more: str = "") -> Path:
    """A Python model with these lines in ``initialize``."""
    folder = model(repository, "code", IDENTITY.replace("identity", "python") + more)
    body = "".join(f"        {line}\n" for line in initialize.splitlines())
    (folder / "1" / "model.py").write_text("import triton_python_backend_utils as pb_utils\n\n\n" + MODEL + body)
    return folder


def test_an_initialize_that_raises(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The report has the reason and its place, once."""
    python_model(tmp_path, 'raise FileNotFoundError("weights.bin is missing")')
    assert check(tmp_path) == 1
    shown = capfd.readouterr()
    assert "code: 1 problem\n  FileNotFoundError: weights.bin is missing\n\n  At:\n" in shown.out
    assert "model.py(9): initialize" in shown.out
    assert shown.out.count("weights.bin") == 1
    assert shown.err == ""


def test_an_initialize_that_ends_its_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python_model(tmp_path, "import os\nprint('no licence')\nos._exit(3)")
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "code: 1 problem\n" in shown and "exit code 3; its last output:\n  no licence" in shown


def test_initialize_runs_as_in_a_server_and_finalize_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = tmp_path / "marks"
    lines = (
        'family = pb_utils.MetricFamily("checked", "Checks.", pb_utils.MetricFamily.COUNTER)\n'
        "self.count = family.Metric({})\nself.count.increment(1)\nassert self.count.value() == 1\n"
        f"self.path = {str(marks)!r}\nopen(self.path, 'a').write(args['model_instance_kind'] + ' began ')"
    )
    folder = python_model(tmp_path / "repository", lines, "instance_group { kind: KIND_CPU count: 3 }\n")
    with (folder / "1" / "model.py").open("a") as file:
        file.write("\n    def finalize(self):\n        open(self.path, 'a').write('ended')\n")
    assert check(folder.parent) == 0
    assert marks.read_text() == "CPU began ended"
    assert "not tried" not in capsys.readouterr().out


@pytest.mark.slow
def test_an_initialize_that_takes_long_is_ended_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("naiad.backends.python.backend.TRIAL_S", 1)
    python_model(tmp_path, "import threading\nthreading.Event().wait(100)")
    assert check(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "code: ok (version 1)\n  not tried: initialize() had not returned after 1 s and was ended" in shown


@pytest.mark.slow
def test_an_initialize_that_takes_longer_than_a_server_would_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python_model(tmp_path, "import threading\nthreading.Event().wait(100)")
    assert check(tmp_path, settings={"python": {"stub-timeout-seconds": "1"}}) == 1
    assert "was not ready within 1 s (--backend-config=python,stub-timeout-seconds=N)" in capsys.readouterr().out


def test_an_initialize_that_needs_other_models_is_not_at_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python_model(tmp_path, 'assert pb_utils.is_model_ready("other")')
    assert check(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "  not tried: initialize() asked for the model 'other', which a check does not serve, and failed: " in shown


def test_a_model_file_is_completed_and_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_model(tmp_path / "relu.onnx")
    assert check(tmp_path / "relu.onnx", settings={"onnxruntime": {"default-max-batch-size": "16"}}) == 0
    shown = capsys.readouterr().out
    assert "  max_batch_size: 16\n" in shown
    assert '  input {\n    name: "X"\n    data_type: TYPE_FP32\n    dims: 3\n  }\n' in shown


@pytest.mark.slow
def test_a_torchscript_file_without_a_repository(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It needs a configuration, and there is no place for one beside a lone file."""
    torch = pytest.importorskip("torch")
    from support import torch_models

    torch_models.save(tmp_path / "net.pt", torch.nn.Linear(4, 3), torch.zeros(1, 4))
    assert check(tmp_path / "net.pt") == 1
    text = (
        f"move {tmp_path / 'net.pt'} to models/net/1/model.pt, and into models/net/config.pbtxt write, with the right"
    )
    assert text in capsys.readouterr().out


def test_a_broken_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "net.onnx").write_bytes(b"this is not a model")
    assert check(tmp_path / "net.onnx") == 1
    assert "net: 1 problem\n" in capsys.readouterr().out


def test_a_models_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model(tmp_path, "echo", IDENTITY)
    assert check(folder) == 0
    assert capsys.readouterr().out.startswith("echo: ok")


def test_a_file_whose_name_is_no_model_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a\\b.onnx"
    file.write_bytes(b"")
    assert check(file) == 1
    assert capsys.readouterr().out == (
        "error: invalid model name 'a\\b', model name must not contain path traversal characters\n"
    )


def ensemble(*models: str, more: str = "") -> str:
    """Steps one behind the other."""
    names = ["X", *(f"t{number}" for number in range(1, len(models))), "Y"]
    steps = [
        f'{{ model_name: "{name}" model_version: -1 input_map {{ key: "A" value: "{names[n]}" }} '
        f'output_map {{ key: "B" value: "{names[n + 1]}" }} }}'
        for n, name in enumerate(models)
    ]
    return f"""platform: "ensemble" max_batch_size: 4 {more}
        input [ {{ name: "X" data_type: TYPE_FP32 dims: [ -1 ] }} ]
        output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ -1 ] }} ]
        ensemble_scheduling {{ step [ {", ".join(steps)} ] }}"""


def test_ensembles_are_checked_against_the_models_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model(tmp_path, "echo", IDENTITY)
    model(tmp_path, "ints", IDENTITY.replace("FP32", "INT32"))
    model(tmp_path, "broken", IDENTITY + "zzz: 1\n")
    model(tmp_path, "a_fine", ensemble("echo", "echo"))
    # It comes before what it is made of.
    nested = ensemble("a_fine").replace('key: "A"', 'key: "X"').replace('key: "B"', 'key: "Y"')
    model(tmp_path, "a_a_nested", nested)
    problems = {
        "b_ints": (ensemble("echo", "ints"), "inconsistent data type: TYPE_FP32 is inferred from model echo while"),
        "b_nobody": (ensemble("nobody"), "contains models that are not available or ambiguous: nobody; check them"),
        "b_broken": (ensemble("broken"), "'b_broken' depends on 'broken' which has problems of its own"),
        "b_version": (
            ensemble("echo").replace("model_version: -1", "model_version: 3"),
            "'b_version' depends on 'echo' whose required version 3 is not loaded.",
        ),
        "b_itself": (ensemble("b_itself"), "circular dependency between ensembles: b_itself -> ... -> b_itself"),
        "b_typo": (ensemble("echo", more="zzz: 1"), "unknown field 'zzz'"),
    }
    for name, (text, _) in problems.items():
        model(tmp_path, name, text)
    assert check(tmp_path) == 1
    shown = capsys.readouterr().out
    for name in ("a_fine", "a_a_nested"):
        assert f"{name}: ok (version 1)\n" in shown
    for name, (_, text) in problems.items():
        _, _, rest = shown.partition(f"{name}: 1 problem\n")
        assert text in rest.splitlines()[0], name
    assert shown.endswith("11 models checked: 4 ok, 7 with problems (7 problems)\n")
