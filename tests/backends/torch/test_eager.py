"""Models in Python: a class in ``model.py`` and its weights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")

from naiad import testing  # noqa: E402
from naiad.config.source import ModelSource  # noqa: E402
from naiad.errors import BackendError, ModelLoadError  # noqa: E402
from support import torch_models  # noqa: E402
from support.backend_contract import context, running, spec, started  # noqa: E402

SOURCE = """
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(4, 3))

    def forward(self, x):
        if x.sum() > 1000:
            raise ValueError("too much")
        return torch.tanh(x @ self.weight)
"""
CONFIG = """backend: "pytorch" max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 3 } """
OPTIONS = """parameters { key: "TORCH_COMPILE_OPTIONAL_PARAMETERS"
value { string_value: "{\\"backend\\": \\"eager\\"}" } } """
X = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
WEIGHT = torch.linspace(-1, 1, 12).reshape(4, 3)
EXPECTED = torch.tanh(torch.from_numpy(X) @ WEIGHT).numpy()


def write(folder: Path, source: str = SOURCE, weights: bool = True) -> Path:
    path = folder / "model.py"
    path.write_text(source)
    if weights:
        torch.save({"weight": WEIGHT}, folder / "model.pt")
    return path


def refusal(path: Path, text: str = CONFIG) -> str:
    with pytest.raises(ModelLoadError) as caught, started("pytorch", context(path), spec(text)):
        pass
    return str(caught.value)


def answer(path: Path, text: str = CONFIG) -> np.ndarray:
    with running("pytorch", context(path), spec(text)) as instance:
        return instance.execute({"x": X}, ("y",))["y"]


def test_a_state_dict_of_torch(tmp_path: Path) -> None:
    np.testing.assert_array_equal(answer(write(tmp_path)), EXPECTED)


def test_weights_of_safetensors_come_first(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    path = write(tmp_path, weights=False)
    (tmp_path / "model.pt").write_bytes(b"not looked at")
    safetensors.save_file({"weight": WEIGHT}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(answer(path), EXPECTED)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    assert "model.safetensors cannot be read" in refusal(path)


def test_weights_in_the_old_format_of_torch(tmp_path: Path) -> None:
    path = write(tmp_path, weights=False)
    torch.save({"weight": WEIGHT}, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    np.testing.assert_array_equal(answer(tmp_path / "model.pt"), EXPECTED)
    assert path.is_file()


def test_a_state_dict_named_as_the_model_finds_its_class(tmp_path: Path) -> None:
    """The reference's layout: model.pt is found first."""
    write(tmp_path)
    np.testing.assert_array_equal(answer(tmp_path / "model.pt"), EXPECTED)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_it_is_compiled_on_request(tmp_path: Path) -> None:
    path = write(tmp_path, SOURCE.replace("if x.sum() > 1000:", "if False:"))
    np.testing.assert_allclose(answer(path, CONFIG + OPTIONS), EXPECTED, rtol=1e-6)
    assert "as a JSON object, without 'model'" in refusal(path, CONFIG + OPTIONS.replace("backend", "model"))


@pytest.mark.slow
def test_models_that_are_loaded_beside_each_other_are_compiled(tmp_path: Path) -> None:
    """torch imports its compiler when it is first asked for."""
    options = {"plain": "{}", "eager": '{\\"backend\\": \\"eager\\"}', "off": '{\\"disable\\": true}'}
    for name, value in options.items():
        folder = tmp_path / "models" / name / "1"
        folder.mkdir(parents=True)
        write(folder, SOURCE.replace("if x.sum() > 1000:", "if False:"))
        (folder.parent / "config.pbtxt").write_text(CONFIG + OPTIONS.replace('{\\"backend\\": \\"eager\\"}', value))
    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": X.ravel().tolist()}]}
    with testing.serving(tmp_path / "log", "--model-repository", tmp_path / "models") as server:
        for name in options:
            found = server.infer(name, request).json()["outputs"][0]["data"]
            np.testing.assert_allclose(found, EXPECTED.ravel(), rtol=1e-6)


@pytest.mark.slow
def test_archives_are_loaded_beside_models_that_are_compiled(tmp_path: Path) -> None:
    """Either has torch import the part of itself that looks into programs."""
    models = tmp_path / "models"
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.zeros(2, 4),))
    for number in range(3):
        for kind in ("archive", "module"):
            (models / f"{kind}{number}" / "1").mkdir(parents=True)
        torch.export.save(program, models / f"archive{number}" / "1" / "model.pt2")
        text = 'platform: "torch_aoti" parameters { key: "COMPILE" value { string_value: "false" } }'
        (models / f"archive{number}" / "config.pbtxt").write_text(text)
        write(models / f"module{number}" / "1", SOURCE.replace("if x.sum() > 1000:", "if False:"))
        (models / f"module{number}" / "config.pbtxt").write_text(CONFIG + OPTIONS)
    options = ("--model-repository", models, "--model-load-thread-count", 6, "--exit-on-error", "false")
    with testing.serving(tmp_path / "log", *options) as server:
        assert [model["state"] for model in server.index()] == ["READY"] * 6, server.log


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
@pytest.mark.parametrize(("options", "words"), [("mode", "Unrecognized mode=eager"), ("team", "argument 'team'")])
def test_arguments_that_torch_does_not_compile_with(tmp_path: Path, options: str, words: str) -> None:
    text = refusal(write(tmp_path), CONFIG + OPTIONS.replace("backend", options))
    assert "torch.compile refuses the parameter TORCH_COMPILE_OPTIONAL_PARAMETERS" in text and words in text


def test_a_failing_run_says_why(tmp_path: Path) -> None:
    with running("pytorch", context(write(tmp_path)), spec(CONFIG)) as instance:
        with pytest.raises(BackendError, match="torch: ValueError: too much"):
            instance.execute({"x": X * 10000}, ("y",))
        np.testing.assert_array_equal(instance.execute({"x": X}, ("y",))["y"], EXPECTED)


PLAIN = SOURCE.replace("if x.sum() > 1000:", "if False:")
COUNTS = PLAIN.replace(
    "def forward(self, x):",
    """    self.register_buffer("runs", torch.zeros(1), persistent=False)
        self.calls = []

    def forward(self, x):
        self.calls.append(x)
        self.runs += 1
        return x[:, :3] + self.runs""",
)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("dims: 4", "dims: 5", r"the inputs 'x' TYPE_FP32 \[-1,5\] .*takes no such inputs: torch: .*\(1x5 and 4x3\)"),
        ("TYPE_FP32", "TYPE_INT32", "the inputs 'x' TYPE_INT32 .*takes no such inputs: torch: RuntimeError: "),
        ("TYPE_FP32", "TYPE_FP64", "the inputs 'x' TYPE_FP64 .*takes no such inputs: torch: RuntimeError: "),
        ("TYPE_FP32 dims: 3", "TYPE_INT32 dims: 3", r"says TYPE_INT32, the model has TYPE_FP32 \(float32\)"),
    ],
)
def test_tensors_that_the_model_does_not_have_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    text = refusal(write(tmp_path, PLAIN), CONFIG.replace(old, new, 1))
    assert re.search(words, text), text


def test_types_are_compared_where_dims_are_variable(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    text = CONFIG.replace("dims: 4", "dims: [ -1, 4 ]").replace("dims: 3", "dims: [ -1, 3 ]")
    for old, new, words in (
        ("TYPE_FP32", "TYPE_FP64", "the inputs 'x' TYPE_FP64 .*takes no such inputs: torch: RuntimeError: "),
        ('"y" data_type: TYPE_FP32', '"y" data_type: TYPE_INT32', "says TYPE_INT32, the model has TYPE_FP32"),
    ):
        found = refusal(path, text.replace(old, new, 1))
        assert re.search(words, found), found


def test_other_dims_of_an_output_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.testing.assert_array_equal(answer(write(tmp_path, PLAIN), CONFIG.replace("dims: 3", "dims: 7")), EXPECTED)
    assert "output 'y' has dims [7] in the configuration, and the model returns [3]; write dims: [ 3 ]" in caplog.text


def test_a_trial_leaves_nothing_behind_in_the_model(tmp_path: Path) -> None:
    found = answer(write(tmp_path, COUNTS))
    np.testing.assert_array_equal(found, X[:, :3] + 1)


@pytest.mark.parametrize(
    "look",
    [
        "if x.sum() > 1000:",
        "if x.max().item() > 1000:",
        "if float(x.sum()) > 1000:",
        "if x.tolist()[0][0] > 1000:",
        "if x.numpy().sum() > 1000:",
        "if len(x[x > 1000]):",
        "if torch.where(x > 1000)[0].numel():",
        "if x.nonzero().numel() < 0:",
        "if torch.equal(x, x + 1000):",
    ],
)
def test_code_that_depends_on_the_data_is_not_tried(tmp_path: Path, look: str) -> None:
    wrong = spec(CONFIG.replace("dims: 4", "dims: 5"))
    words = "mat1 and mat2 shapes cannot be multiplied"
    source = SOURCE.replace("if x.sum() > 1000:", look)
    path = write(tmp_path, source)
    with running("pytorch", context(path), wrong) as instance, pytest.raises(BackendError, match=words):
        instance.execute({"x": np.zeros((1, 5), np.float32)}, ("y",))


def test_code_that_waits_for_its_data_does_not_hold_up_the_load(tmp_path: Path) -> None:
    source = SOURCE.replace("if x.sum() > 1000:", "while x.sum() == 0:").replace('raise ValueError("too much")', "pass")
    np.testing.assert_array_equal(answer(write(tmp_path, source)), EXPECTED)


def test_a_trial_imports_no_more_of_torch(tmp_path: Path) -> None:
    """A run without data has torch import a thousand modules."""
    write(tmp_path, PLAIN)
    code = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.backend_contract import context, spec, started
with started("pytorch", context(Path(sys.argv[1])), spec(sys.stdin.read())):
    pass
sys.exit("sympy" in sys.modules)
"""
    line = [sys.executable, "-c", code, str(tmp_path / "model.py"), str(Path(__file__).parents[2])]
    done = subprocess.run(line, input=CONFIG, text=True, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_the_class_is_named_where_there_are_several(tmp_path: Path) -> None:
    path = write(tmp_path, SOURCE + "\nclass Other(Layer):\n    pass\n")
    assert "found Layer, Other; the parameter MODEL_CLASS names the one to serve" in refusal(path)
    chosen = 'parameters { key: "MODEL_CLASS" value { string_value: "Other" } } '
    np.testing.assert_array_equal(answer(path, CONFIG + chosen), EXPECTED)
    assert "has no 'Third', expected one class" in refusal(path, CONFIG + chosen.replace("Other", "Third"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "import no_such_module_at_all",
            "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_at_all'",
        ),
        ("def f(:", "cannot be imported: SyntaxError"),
        ("from torch.nn import Linear", "has none, expected one class of torch.nn.Module, found none"),
        (SOURCE.replace("__init__(self)", "__init__(self, size)"), "it is called without arguments"),
    ],
)
def test_a_file_that_has_no_such_class(tmp_path: Path, source: str, words: str) -> None:
    assert words in refusal(write(tmp_path, source))


def test_weights_that_are_missing(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, weights=False))
    assert "Layer has 1 weights, and there is neither model.safetensors nor model.pt" in text


def test_weights_that_do_not_fit_show_both_sides(tmp_path: Path) -> None:
    path = write(tmp_path)
    torch.save({"weight": torch.zeros(5, 3)}, tmp_path / "model.pt")
    text = refusal(path)
    assert "do not fit Layer" in text and "torch.Size([5, 3])" in text and "torch.Size([4, 3])" in text
    torch.save({"weights": WEIGHT}, tmp_path / "model.pt")
    text = refusal(path)
    assert 'Missing key(s) in state_dict: "weight"' in text and 'Unexpected key(s) in state_dict: "weights"' in text


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    path = write(tmp_path)
    # A whole module, as torch.save(model) writes it.
    torch.save(torch.nn.Linear(4, 3), tmp_path / "model.pt")
    text = refusal(path)
    assert "cannot be read as weights alone: it holds a torch.nn.modules.linear.Linear" in text
    assert "can run any code and is not loaded" in text and "trust" not in text


def test_weights_that_are_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path)
    weights = tmp_path / "model.pt"
    weights.write_bytes(weights.read_bytes()[:400])
    assert "the file is damaged or cut short, copy or save it again" in refusal(path)


def test_torchscript_beside_a_class_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    torch_models.save(tmp_path / "model.pt", torch_models.Subtract())
    assert "is a TorchScript file, expected the weights of model.py" in refusal(path)


def test_a_configuration_without_tensors_says_what_to_write(tmp_path: Path) -> None:
    text = refusal(write(tmp_path), 'backend: "pytorch"')
    assert "a class of Python does not say" in text and 'input [ { name: "x"' in text


@pytest.mark.slow
def test_a_check_finds_the_class_and_says_how_to_replace_torchscript(tmp_path: Path) -> None:
    folder = tmp_path / "layer" / "1"
    folder.mkdir(parents=True)
    write(folder)
    (tmp_path / "layer" / "config.pbtxt").write_text(CONFIG)
    script = tmp_path / "old" / "1"
    script.mkdir(parents=True)
    torch_models.save(script / "model.pt", torch.nn.Linear(4, 3))
    (tmp_path / "old" / "config.pbtxt").write_text(
        CONFIG.replace("backend", "platform").replace("pytorch", "pytorch_libtorch")
    )
    done = subprocess.run(
        [sys.executable, "-m", "naiad", "check", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "layer: ok (version 1)" in done.stdout, done.stdout + done.stderr
    assert "old: ok (version 1)\n  advice: model.pt is TorchScript, which torch has deprecated" in done.stdout
    assert "torch.export.save(torch.export.export(" in done.stdout and "Warning" not in done.stderr


def test_a_model_without_a_stated_backend_stays_a_python_model(tmp_path: Path) -> None:
    from naiad.config.resolve import prepare

    folder = tmp_path / "layer" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(SOURCE)
    source = ModelSource("layer", versions={1: folder}, directory=tmp_path / "layer")
    assert prepare(source, 1).backend == "python"
