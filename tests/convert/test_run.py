"""Whole conversions by the command, with real frameworks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import naiad
from naiad.cli.main import main
from naiad.convert.errors import StepFailure
from naiad.convert.package import inspect, load, save
from naiad.convert.results import Conversion, FormatResult
from naiad.convert.run import too_long_to_compile
from support.convert_programs import FUNCTION, NETWORK, write_program
from support.html_pages import Page

FAST = ("--window=20", "--batch-sizes=1,4")


def converted(folder: Path, *words: str) -> tuple[int, Conversion]:
    """The exit code and the report of ``naiad convert``."""
    code = main(["convert", *words, f"--work={folder / 'work'}", *FAST])
    return code, Conversion.from_json(json.loads((folder / "work" / "report.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def function(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Conversion]:
    """A function that was converted and published; the folder has all that the command wrote."""
    folder = tmp_path_factory.mktemp("function")
    program = write_program(folder, FUNCTION)
    more = (f"--repository={folder / 'models'}", f"--html={folder / 'r.html'}", f"--package={folder / 'p.nav'}")
    code, conversion = converted(folder, f"{program}:double", f"--data={program}:data", *more)
    assert code == 0
    return folder, conversion


@pytest.mark.slow
def test_a_function_is_verified_measured_and_published(function: tuple[Path, Conversion]) -> None:
    folder, conversion = function
    result = conversion.of("python")
    assert result is not None and result.measured is not None and result.verified is not None
    assert conversion.chosen == "python"
    assert result.verified["max_abs"] == 0
    assert [level.batch for level in result.measured.levels] == [1, 4]
    # The function runs in a process of its own, and is gone when the step ends.
    assert result.measured.rss_bytes > 128 << 20
    assert conversion.described["signature"]["is_batching"] is True
    with naiad.Server(model_repository=str(folder / "models")) as server:
        (response,) = server.model("double").infer(inputs={"x": np.ones((1, 4), np.float32)})
        assert response.outputs["y"].numpy().tolist() == [[2, 2, 2, 2]]


@pytest.mark.slow
def test_the_report_stands_alone(function: tuple[Path, Conversion]) -> None:
    page = Page()
    page.feed((function[0] / "r.html").read_text(encoding="utf-8"))
    assert page.loads == [] and page.unclosed == []


@pytest.mark.slow
def test_a_package_comes_back(function: tuple[Path, Conversion], tmp_path: Path) -> None:
    folder, conversion = function
    assert "python *" in inspect(folder / "p.nav")
    again = load(folder / "p.nav", tmp_path / "unpacked")
    made = again.formats[0].made
    assert made is not None and Path(made["file"]).is_relative_to(tmp_path) and Path(made["file"]).exists()
    save(again, tmp_path / "again.nav")
    assert (tmp_path / "again.nav").exists()
    assert again.chosen == conversion.chosen


@pytest.mark.slow
def test_the_users_function_decides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_program(tmp_path, FUNCTION)
    words = (f"{program}:double", f"--data={program}:data", f"--verify={program}:half_right", "--min=0.9")
    code, conversion = converted(tmp_path, *words)
    assert (code, conversion.chosen) == (1, "")
    assert "half_right returns 0.5, and --min is 0.9" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_what_cannot_be_published_is_reported_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = write_program(tmp_path, FUNCTION)
    (tmp_path / "file").touch()
    words = (f"{program}:double", f"--data={program}:data", f"--repository={tmp_path / 'file'}")
    code, conversion = converted(tmp_path, *words)
    assert (code, conversion.chosen, conversion.published) == (1, "python", "")
    shown = " ".join(capsys.readouterr().out.split())
    assert "python * ok" in shown and "not published:" in shown
    assert "cannot be written" in conversion.publish_failure


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_network_becomes_onnx_and_openvino(tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxruntime", "openvino"):
        pytest.importorskip(package)
    program = write_program(tmp_path, NETWORK)
    words = ("--formats=onnx-trace,openvino", f"--repository={tmp_path / 'models'}")
    code, conversion = converted(tmp_path, f"{program}:net", f"--data={program}:data", *words)
    assert code == 0
    states = {result.target: result.state for result in conversion.formats}
    assert states.get("onnx-trace") == "ok"
    assert states.get("openvino") == "ok"
    for result in conversion.formats:
        assert "tensorflow" not in result.frameworks
    config = (tmp_path / "models" / "net" / "config.pbtxt").read_text(encoding="utf-8")
    assert "max_batch_size: 4" in config and "model_warmup" in config
    measured = tmp_path / "work" / "openvino" / "measure" / "repository" / "measured" / "config.pbtxt"
    # As it was verified; on some processors it would compute in BF16.
    assert "HINT_BF16" in measured.read_text(encoding="utf-8")


SPARE = """
import torch

class Net(torch.nn.Module):
    def forward(self, spare, x):
        return x + 1

net = Net()

def data():
    for rows in (2, 3):
        yield {"spare": torch.ones(rows, 1, dtype=torch.int64), "x": torch.ones(rows, 2)}
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_onnx_has_the_inputs_that_nothing_reads(tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxruntime"):
        pytest.importorskip(package)
    program = write_program(tmp_path, SPARE)
    words = ("--formats=onnx-trace", f"--repository={tmp_path / 'models'}")
    code, conversion = converted(tmp_path, f"{program}:net", f"--data={program}:data", *words)
    assert code == 0
    assert [(result.target, result.state) for result in conversion.formats] == [("onnx-trace", "ok")]
    with naiad.Server(model_repository=str(tmp_path / "models")) as server:
        inputs = {"spare": np.ones((1, 1), np.int64), "x": np.ones((1, 2), np.float32)}
        (response,) = server.model("net").infer(inputs=inputs)
        assert response.outputs["output__0"].numpy().tolist() == [[2, 2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "text"),
    [("words", "returns a str, which is no tensor"), ("broken", "elements that are NaN or infinity")],
)
def test_a_source_that_cannot_be_compared_is_refused(
    tmp_path: Path, model: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    program = write_program(tmp_path, NETWORK)
    assert main(["convert", f"{program}:{model}", f"--data={program}:data", f"--work={tmp_path / 'w'}"]) == 1
    assert text in capsys.readouterr().err


@pytest.mark.slow
def test_samples_with_other_names_than_the_file_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is converted: the error of each conversion would name another cause."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    graph = "double (float[N, 3] x) => (float[N, 3] y) { y = Add (x, x) }"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]>' + graph)
    onnx.save(model, tmp_path / "double.onnx")
    np.savez(tmp_path / "samples.npz", z=np.ones((4, 3), np.float32))
    words = (str(tmp_path / "double.onnx"), f"--data={tmp_path / 'samples.npz'}", f"--work={tmp_path / 'work'}")
    assert main(["convert", *words]) == 1
    told = capsys.readouterr().err
    assert "the samples have the inputs z, and the model has x" in told
    assert "give the arrays of --data the names of the model's inputs" in told
    assert (tmp_path / "work" / "describe" / "reproduce.py").is_file() and "run it again: " in told
    # The server keeps no folder of the conversion, unless it is asked to.
    assert main(["serve", *words[:2], "--optimize"]) == 1
    told = capsys.readouterr().err
    assert "the samples have the inputs z" in told and "run it again" not in told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--formats=onxx",), "there is no format 'onxx'"),
        (("--min=0.9",), "--min needs --metric"),
        (("--strategy=latency-budget",), "needs --latency-budget"),
        (("--metric=top1", "--verify=a.py:b"), "give --metric or --verify"),
        (("--labels=none.txt",), "there is no file none.txt"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", "net.py:net", "--data=x.npz", *words]) == 1
    assert text in capsys.readouterr().err


def test_what_is_no_package_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.nav").write_bytes(b"nothing")
    assert main(["convert", "inspect", str(tmp_path / "p.nav")]) == 1
    assert "no package of naiad convert" in capsys.readouterr().err


@pytest.mark.parametrize(("is_time_limit", "expected"), [(True, True), (False, False)])
def test_an_archive_that_took_too_long_to_compile_is_not_compiled_again(is_time_limit: bool, expected: bool) -> None:
    failed = FormatResult("aotinductor", failure=StepFailure("it was ended", is_time_limit=is_time_limit))
    conversion = Conversion("m", "m", "work", formats=[FormatResult("torch-export"), failed])
    assert (too_long_to_compile(conversion, "torch-export") is not None) is expected
    assert too_long_to_compile(conversion, "torchscript-trace") is None
