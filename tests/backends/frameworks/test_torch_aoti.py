"""The contract of framework backends for packages of AOTInductor."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
pytest.importorskip("torch.export.pt2_archive", reason="this torch writes archives of an older form")
if shutil.which("g++") is None:
    pytest.skip("there is no C++ compiler, which AOTInductor needs", allow_module_level=True)

from backends.contract import FrameworkContract  # noqa: E402
from naiad.backend_api.backend import Arrays  # noqa: E402
from naiad.backends.torch.compile_main import compile_archive  # noqa: E402
from naiad.errors import BackendError  # noqa: E402
from support import exported_models as models  # noqa: E402
from support.backend_contract import context, running, spec  # noqa: E402
from support.framework import FAILING_INDEX, Framework, Pair, Signature, damaged  # noqa: E402

# A compilation may take minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAMAGED = r"model\.pt2 cannot be read as an archive of torch\.export: .*; it is damaged or cut short"
PACKAGES: dict[str, tuple[Path, Signature]] = {}


@pytest.fixture(scope="module", autouse=True)
def folder() -> Iterator[None]:
    """A folder for the packages and for all that the compiler keeps."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="naiad-aoti-") as made:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", made)
        yield
    PACKAGES.clear()


def compiled(name: str, path: Path, write: Callable[[Path], Signature]) -> Signature:
    """The package of an archive, which is compiled once."""
    if name not in PACKAGES:
        # By number: a name may have any character.
        package = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / f"{len(PACKAGES)}.pt2"
        signature = write(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile_archive(str(path), str(package), "cpu")
        PACKAGES[name] = package, signature
    package, signature = PACKAGES[name]
    shutil.copy(package, path)
    return signature


def network(path: Path, seed: int, hidden: int) -> Signature:
    """With the same weights for all seeds and sizes: each compilation takes long."""
    return compiled("network", path, lambda at: models.network(at, 0, 8))


def identity(path: Path, pairs: Sequence[Pair]) -> Signature:
    name = "_".join(f"{pair.input}_{pair.wire}" for pair in pairs)
    return compiled(name, path, lambda at: models.identity(at, pairs))


def failing(path: Path) -> Signature:
    return compiled("failing", path, models.failing)


@cache
def package_of(path: Path) -> Any:
    return torch._inductor.aoti_load_package(str(path))


def run(path: Path, inputs: Arrays) -> Arrays:
    with torch.inference_mode():
        return {"OUTPUT__0": package_of(path)(torch.from_numpy(inputs["INPUT__0"])).numpy()}


class TestContract(FrameworkContract):
    # The instances are those of archives of ``torch.export``, and compiling takes long.
    test_every_thread_of_an_instance_is_on_the_cores_of_its_policy = None  # type: ignore[assignment]
    framework = Framework(
        name="pytorch",
        config='platform: "torch_aoti"',
        file="model.pt2",
        network=network,
        run=run,
        broken=damaged(missing=r"model\.pt2 does not exist", empty=DAMAGED, garbage=DAMAGED, cut=DAMAGED),
        auto_complete=r"input \[ \{ name: \"INPUT__0\" data_type: TYPE_FP32",
        mismatches={"datatype": "says TYPE_INT32, the model has TYPE_FP32", "dims": "5 where the model has 4"},
        identity=identity,
        datatypes=(models.WIRES,),
        odd_names=models.ODD_NAMES,
        failing=failing,
        failure="torch: RuntimeError: index out of bounds: 0 <= ",
        # A shared process is one more with the same code.
        modes=("thread", "process"),
        brief_modes=("process",),
        reloads=(5, 30),
        lacks={
            "wrong_name": "a lone input may have any name",
            **dict.fromkeys(("scalar", "ragged"), "compiling takes long, and archives that run as they are have it"),
        },
    )


def test_code_that_ends_its_process_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A package of somebody else, whose loop over the indices runs on threads."""
    text = failing(tmp_path / "own.pt2").text()
    with zipfile.ZipFile(tmp_path / "own.pt2") as own, zipfile.ZipFile(tmp_path / "model.pt2", "w") as other:
        for name in own.namelist():
            content = own.read(name)
            other.writestr(name, content + b"#pragma omp parallel\n" if name.endswith(".cpp") else content)
    for name, count in (("own.pt2", 0), ("model.pt2", 1)):
        with running("pytorch", context(tmp_path / name), spec('platform: "torch_aoti"\n' + text)) as instance:
            given = {"INDEX": np.array([[FAILING_INDEX]], np.int64)}
            if not count:
                with pytest.raises(BackendError, match="index out of bounds"):
                    instance.execute(given, ("VALUE",))
        warned = [line for line in caplog.messages if "ends its process when an index is beyond a tensor" in line]
        assert len(warned) == count


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, by which the folder is found")
def test_a_loaded_package_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch extracts it into a folder that a killed process could not remove."""
    extracted = tmp_path / "of the system"
    extracted.mkdir()
    monkeypatch.setenv("TMPDIR", str(extracted))
    text = network(tmp_path / "model.pt2", 0, 8).text()
    row = np.ones((1, 4), np.float32)
    with running("pytorch", context(tmp_path / "model.pt2"), spec('platform: "torch_aoti"\n' + text)) as instance:
        assert list(extracted.iterdir()) == []
        first = instance.execute({"INPUT__0": row}, ("OUTPUT__0",))
        with running("pytorch", context(tmp_path / "model.pt2"), spec('platform: "torch_aoti"\n' + text)) as other:
            second = other.execute({"INPUT__0": row}, ("OUTPUT__0",))
        np.testing.assert_array_equal(first["OUTPUT__0"], second["OUTPUT__0"])
