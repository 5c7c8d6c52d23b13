"""The case ``formats`` of ``scripts/bench``: its table of formats, and real ones called directly and served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from naiad.config.read import ConfigFormat, find_config_file, parse_config
from support.bench_parts import part


def forms() -> dict[str, Any]:
    return {form.name: form for form in part("formats.table").FORMATS}


def subjects() -> dict[str, Any]:
    return {subject.name: subject for subject in part("formats.subjects").SUBJECTS}


def test_every_network_has_a_format_and_every_format_a_network() -> None:
    used = {network for form in forms().values() for network in form.networks}
    assert used == set(subjects())
    assert all(form.networks for form in forms().values())


def test_what_a_format_lacks_is_named() -> None:
    onnx = forms()["onnx"]
    assert replace(onnx, needs=("json", "naiad.backends")).lacking() == ""
    assert replace(onnx, needs=("json", "no_such_package", "neither")).lacking() == "no_such_package"
    assert replace(onnx, needs=("naiad.backends.no_such_backend.backend",)).lacking() != ""


def test_images_are_turned_for_formats_whose_channels_come_last() -> None:
    resnet = subjects()["resnet50"]
    usual, turned = (resnet.sample(forms()[name]) for name in ("onnx", "tensorflow"))
    assert usual.shape == (1, 3, 224, 224)
    assert np.array_equal(turned, usual.transpose(0, 2, 3, 1))
    assert turned.flags.c_contiguous


def test_the_configurations_say_what_is_sent(tmp_path: Path) -> None:
    served = part("formats.served")
    for form in forms().values():
        for network in form.networks:
            subject, repository = subjects()[network], tmp_path / f"{form.name}-{network}"
            served.add_served(repository, form, subject, tmp_path / form.file, 1, served.warmup_field(form, subject))
            file = find_config_file(repository / network)
            assert file is not None
            config = parse_config(file.read_text(), ConfigFormat.PBTXT, file).config
            sample = subject.sample(form)
            assert (config.backend, config.default_model_filename) == (form.backend, form.file)
            assert [tuple(tensor.dims) for tensor in config.input] == [sample.shape]
            assert tuple(config.model_warmup[0].inputs[form.tensors[0]].dims) == sample.shape
            assert config.parameters[form.threads].string_value == "1"


def found(memory_added: int, ours: float) -> Any:
    case, mib = part("cases.formats"), part("machine").MIB
    form = part("formats.form")
    own, served = form.Speed(1000, 1000, 1100), form.Speed(ours, 1200, 1500)
    slow, fast = case.Start(2.0, 2.2, 0.5), case.Start(2.4, 2.7, 0.01)
    return case.Found(
        {"direct": [own] * 3, "one": [served] * 3, "thread": [served] * 3, "process": [served] * 3},
        {"direct": [slow], "thread": [fast], "process": [fast], "warm": [fast]},
        {"direct": 100 * mib, "thread": (100 + memory_added) * mib, "process": 150 * mib},
    )


def test_a_pair_keeps_and_misses_its_bounds(tmp_path: Path) -> None:
    case = part("cases.formats")
    pair = case.Pair(forms()["onnx"], subjects()["resnet50"], tmp_path)
    good = {figure.name.removeprefix(pair.name + "_"): figure for figure in case.figures(pair, found(40, 951))}
    assert good["ratio"].value == pytest.approx(0.951)
    assert good["memory"].value == 40
    # Both until the first answer: 2.41 s and 2.5 s.
    assert good["load_ratio"].value == pytest.approx(2.41 / 2.5)
    verdicts = [good[name].verdict for name in ("ratio", "memory", "process_memory", "load_ratio")]
    assert verdicts == ["ok", "ok", "ok", "ok"]
    missed = [figure.name for figure in case.figures(pair, found(41, 949)) if figure.verdict == "missed"]
    assert missed == [f"{pair.name}_ratio", f"{pair.name}_memory"]


def test_the_table_has_a_line_for_each_pair(tmp_path: Path) -> None:
    case = part("cases.formats")
    pair = case.Pair(forms()["tensorflow"], subjects()["resnet50"], tmp_path)
    head, line = case.lines([case.HEADINGS, case.row(pair, found(20, 951))])
    assert line.split()[:2] == ["resnet50", "tensorflow"]
    assert line.split()[-6:] == ["1,000", "951", "1.2", "1.5", "120", "2.4"]
    assert len(head) == len(line)


def test_a_framework_that_refuses_fails_the_case_with_its_words(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    direct, figures = part("formats.direct_caller"), part("figures")
    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    with (
        pytest.raises(figures.CaseError, match=r"(?s)calling a framework directly failed.*model\.onnx"),
        direct.called_directly(forms()["onnx"], "dense", tmp_path / "model.onnx", 1, tmp_path),
    ):
        pass


@pytest.mark.slow
def test_a_quick_run_measures_every_format_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    case, settings = part("cases.formats"), part("settings")
    absent = replace(forms()["torchscript"], name="absent", needs=("no_such_package",))
    monkeypatch.setattr(case, "FORMATS", (forms()["onnx"], absent))
    figures = {figure.name: figure for figure in case.measure(settings.Settings(tmp_path, 1, 1, quick=True))}
    names = ("direct", "rate", "ratio", "process_ratio", "p95", "memory", "process_memory", "load_ratio", "first")
    assert all(figures[f"formats_dense_onnx_{name}"].value > 0 for name in names)
    printed = capfd.readouterr().out
    assert "published, ResNet50 on one GPU: TensorFlow 150, ONNX 250, TensorRT 290" in printed
    assert "absent is left out: there is no no_such_package" in printed
