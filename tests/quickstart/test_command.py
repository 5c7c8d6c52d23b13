"""``naiad quickstart`` as a person meets it: what it writes, and what it refuses without leaving half a model."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from google.protobuf import text_format

from naiad.cli.main import main
from naiad.config.messages import message_class
from naiad.quickstart import image
from naiad.quickstart.catalog import MODELS
from naiad.quickstart.write import QuickstartError, write_repository
from support.document_blocks import ROOT, blocks

SMALL = "--models=simple,add_sub"


def shown(folder: Path) -> list[str]:
    """What a folder has, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


def test_models_are_written_with_a_readme_and_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "models"
    assert main(["quickstart", str(folder), SMALL]) == 0
    assert shown(folder) == ["README.md", "add_sub", "image.png", "simple"]
    assert shown(folder / "simple") == ["1", "config.pbtxt", "request.json"]
    assert shown(folder / "simple" / "1") == ["model.onnx"]
    assert "`simple`" in (folder / "README.md").read_text() and "linear_model" not in (folder / "README.md").read_text()
    assert f"naiad serve {folder}" in capsys.readouterr().out


def test_folders_with_odd_names(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in (b"my {models}", b"caf\xe9"):
        folder = tmp_path / os.fsdecode(name)
        assert main(["quickstart", str(folder), SMALL]) == 0
        assert shown(folder) == ["README.md", "add_sub", "image.png", "simple"]
    assert "naiad serve 'my {models}'" in (tmp_path / "my {models}" / "README.md").read_text()
    assert f"naiad serve '{tmp_path}/caf\\xe9'" in capfd.readouterr().out


def test_an_ensemble_brings_its_members(tmp_path: Path) -> None:
    assert main(["quickstart", str(tmp_path / "m"), "--models", "ensemble_python_resnet50"]) == 0
    assert {"ensemble_python_resnet50", "preprocess", "resnet50_onnx"} <= set(shown(tmp_path / "m"))
    assert (tmp_path / "m" / "resnet50_onnx" / "labels.txt").read_text().splitlines()[999] == "CLASS 999"


@pytest.mark.slow
def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["quickstart", str(tmp_path / name), "--models=simple,densenet_onnx,inception_onnx"]) == 0
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    different = [f for f in files if (tmp_path / "a" / f).read_bytes() != (tmp_path / "b" / f).read_bytes()]
    # The commands in it name the folder.
    assert different == [Path("README.md")]
    assert sum((tmp_path / "a" / f).stat().st_size for f in files) < 10 << 20


def test_the_list_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quickstart", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(MODELS)
    assert next(line for line in lines if line.startswith("linear_model")).endswith("(needs torch)")


def test_the_image_is_a_png() -> None:
    pil = pytest.importorskip("PIL.Image")
    found = pil.open(io.BytesIO(image.sample_image()))
    assert (found.format, found.mode, found.size) == ("PNG", "RGB", (image.WIDTH, image.HEIGHT))
    assert found.getpixel((130, 130)) == (215, 43, 43)


@pytest.mark.slow
def test_the_readme_lets_linear_model_batch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    write_repository(tmp_path / "models", [MODELS["linear_model"]])
    *_, command = blocks(tmp_path / "models" / "README.md")
    subprocess.run(["bash", "-euc", command.text], cwd=tmp_path, check=True)
    config = message_class("ModelConfig")()
    text_format.Parse((tmp_path / "models" / "linear_model" / "config.pbtxt").read_text(), config)
    assert config.HasField("dynamic_batching") and config.max_batch_size == 32


# What is refused


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([""], "name the folder to write, as in: naiad quickstart models"),
        ([], "name the folder to write, as in: naiad quickstart models"),
        (["m", "--models="], "--models names no model, expected names such as simple,add_sub"),
        (["m", "--models=simpel"], "there is no quickstart model 'simpel', did you mean 'simple'?"),
        (["m", "--models=xyz"], "there is no quickstart model 'xyz'; naiad quickstart --list shows all"),
    ],
)
def test_wrong_arguments(
    argv: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["quickstart", *argv]) == 1
    assert capsys.readouterr().err == f"error: {text}\n"
    assert shown(tmp_path) == []


def test_a_file_in_place_of_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "models"
    file.write_text("mine")
    for extra in ([], ["--force"]):
        assert main(["quickstart", str(file), SMALL, *extra]) == 1
        assert capsys.readouterr().err == f"error: '{file}' is no folder, expected a new or an empty one\n"
    assert main(["quickstart", str(file / "below"), SMALL]) == 1
    assert "Not a directory" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_a_folder_with_models_needs_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine" / "1").mkdir(parents=True)
    (tmp_path / "simple" / "2").mkdir(parents=True)
    (tmp_path / "README.md").write_text("mine")
    assert main(["quickstart", str(tmp_path), SMALL]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: '{tmp_path}' holds README.md, mine, simple already") and "--force" in error
    assert shown(tmp_path) == ["README.md", "mine", "simple"] and shown(tmp_path / "simple") == ["2"]
    assert main(["quickstart", str(tmp_path), SMALL, "--force"]) == 0
    assert shown(tmp_path) == ["README.md", "add_sub", "image.png", "mine", "simple"]
    # A version of the former model beside the new one would be served as the newer.
    assert shown(tmp_path / "simple") == ["1", "config.pbtxt", "request.json"]
    assert shown(tmp_path / "mine") == ["1"]


def test_other_files_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".git").mkdir()
    assert main(["quickstart", str(tmp_path), SMALL]) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


# Packages


def test_a_model_without_its_package_is_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Python itself takes for "not installed".
    for package in ("onnx", "torch", "tensorflow", "PIL"):
        monkeypatch.setitem(sys.modules, package, None)
    assert main(["quickstart", str(tmp_path / "m")]) == 0
    out = capsys.readouterr().out
    assert "left out: linear_model: the package 'torch' is not installed; run: pip install 'naiad[torch]'" in out
    assert "left out: simple: the package 'onnx' is not installed; run: pip install 'naiad[quickstart]'" in out
    assert "left out: ensemble_python_resnet50: it runs 'preprocess', which is left out" in out
    assert {"add_sub", "custom_identity_int32", "repeat_int32", "simple_identity"} < set(shown(tmp_path / "m"))
    assert not set(shown(tmp_path / "m")) & {"simple", "linear_model", "inception_graphdef", "preprocess"}


def test_a_named_model_without_its_package_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["quickstart", str(tmp_path / "m"), "--models=add_sub,linear_model"]) == 1
    assert "'linear_model' cannot be written: the package 'torch' is not installed" in capsys.readouterr().err
    assert shown(tmp_path) == []


def test_the_extras_that_texts_name_install_the_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    packages = {package for model in MODELS.values() for package in model.packages}
    assert {package.module for package in packages} == {"onnx", "onnxruntime", "PIL", "tensorflow", "torch"}
    installed_as = {"PIL": "pillow"}
    for package in packages:
        name = installed_as.get(package.module, package.module)
        assert any(re.match(rf"{name}\b", requirement) for requirement in extras[package.extra]), package


def test_a_package_that_does_not_work_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = types.ModuleType("onnx")
    broken.__spec__ = ModuleSpec("onnx", None)
    monkeypatch.setitem(sys.modules, "onnx", broken)
    with pytest.raises(
        QuickstartError, match=r"'simple' could not be built with onnx, onnxruntime: .*import.*--models"
    ):
        write_repository(tmp_path / "m", [MODELS["add_sub"], MODELS["simple"]])
    assert shown(tmp_path) == []


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_no_model_behind(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small_disk / "old" / "simple").mkdir(parents=True)
    new, old = small_disk / "new", small_disk / "old"
    assert main(["quickstart", str(new), "--models=simple,densenet_onnx"]) == 1
    error = capsys.readouterr().err
    assert os.strerror(errno.ENOSPC) in error and "no model was left half-written" in error
    assert not new.exists()
    assert main(["quickstart", str(new / "below" / "it"), "--models=densenet_onnx"]) == 1
    assert not new.exists() and capsys.readouterr().err
    assert main(["quickstart", str(old), "--models=simple,densenet_onnx", "--force"]) == 1
    assert shown(old) == ["simple"] and shown(old / "simple") == []
    assert main(["quickstart", str(new), SMALL]) == 0


def test_a_disk_that_may_not_be_written(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small_disk / "empty").mkdir()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    for folder in (small_disk / "empty", small_disk / "new"):
        assert main(["quickstart", str(folder), SMALL]) == 1
        assert f"cannot write '{folder}': {os.strerror(errno.EROFS)}" in capsys.readouterr().err


def test_a_folder_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    # In a process of its own: root may write everywhere, and nobody has to be able to read the folder above.
    program = (
        "import os, sys\nfrom naiad.cli.main import main\nimport naiad.cli.quickstart\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "sys.exit(main(['quickstart', 'new', '--models=add_sub']))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=closed, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        f"error: cannot write 'new': {os.strerror(errno.EACCES)}; no model was left half-written\n",
    )


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom naiad.quickstart import write\n"
        "from naiad.quickstart.catalog import MODELS\n"
        "write.write_repository(Path(sys.argv[1]), [MODELS['add_sub'], MODELS['simple']],\n"
        "    on_model=lambda name: os._exit(9) if name == 'simple' else None)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60)
    assert done.returncode == 9
    (left,) = shown(tmp_path)
    assert left.startswith(".")
    assert main(["quickstart", str(tmp_path), SMALL]) == 0
    assert shown(tmp_path) == ["README.md", "add_sub", "image.png", "simple"]
