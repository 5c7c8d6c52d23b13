"""Compiled programs: archives that are compiled on first use, and packages of AOTInductor. One compilation for all."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the extra torch is not installed")
if shutil.which("g++") is None:
    pytest.skip("there is no C++ compiler, which AOTInductor needs", allow_module_level=True)

from naiad.backend_api.backend import BackendContext  # noqa: E402
from naiad.backends.torch.aoti import load_runner  # noqa: E402
from naiad.backends.torch.compile_cache import keep_inductor_files  # noqa: E402
from naiad.backends.torch.compiled_code import CompiledCode  # noqa: E402
from naiad.errors import InvalidArgumentError, ModelLoadError  # noqa: E402
from naiad.testing import serving  # noqa: E402
from support import torch_programs  # noqa: E402
from support.backend_contract import context, group, running, spec, started  # noqa: E402

pytestmark = pytest.mark.slow

TEXT = """platform: "torch_aoti"
input [ { name: "x" data_type: TYPE_FP32 dims: -1 }, { name: "y" data_type: TYPE_FP32 dims: -1 } ]
output { name: "z" data_type: TYPE_FP32 dims: -1 } """
FIXED = TEXT.replace("dims: -1", "dims: 5")
BATCHED = "max_batch_size: 8 " + TEXT.replace("dims: -1", "dims: 1 reshape { shape: [ ] }")
X, Y = np.arange(5, dtype=np.float32), np.full(5, 10, np.float32)


@dataclass
class Compiled:
    """The archive, the folder of compiled code, the package in it, the log of its start, and how long that took."""

    archive: Path
    cache: Path
    package: Path
    log: str
    start_s: float


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def cached(path: Path, cache: Path) -> BackendContext:
    return replace(context(path), backend_config={"compile-cache": str(cache)})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """Two models with the same archive start at once, in an empty cache."""
    folder = tmp_path_factory.mktemp("compiled")
    archive, cache = torch_programs.guarded(folder / "model.pt2"), folder / "cache"
    handler, logger = Lines(), logging.getLogger("naiad")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    begun = time.monotonic()
    threads = [threading.Thread(target=_start, args=(archive, cache)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(500)
        assert not thread.is_alive()
    taken = time.monotonic() - begun
    logger.removeHandler(handler)
    logger.setLevel(level)
    (package,) = cache.glob("*.pt2")
    yield Compiled(archive, cache, package, "\n".join(handler.lines), taken)


def _start(archive: Path, cache: Path) -> None:
    with started("pytorch", cached(archive, cache), spec(TEXT)):
        pass


def answer(at: BackendContext, text: str = TEXT) -> np.ndarray:
    with running("pytorch", at, spec(text)) as instance:
        return instance.execute({"x": X, "y": Y}, ("z",))["z"]


def refusal(at: BackendContext, text: str) -> str:
    with pytest.raises(ModelLoadError) as caught, running("pytorch", at, spec(text)):
        pass
    return str(caught.value)


def test_a_cache_that_cannot_be_made(tmp_path: Path) -> None:
    archive = torch_programs.guarded(tmp_path / "model.pt2")
    (tmp_path / "file").touch()
    text = refusal(cached(archive, tmp_path / "file" / "cache"), TEXT)
    assert "cannot be made: Not a directory; --backend-config=pytorch,compile-cache=<folder> names another one" in text


def test_it_is_compiled_once_and_the_log_says_how_long_that_took(compiled: Compiled) -> None:
    assert len(re.findall(r"compiled model\.pt2 in \d+\.\d s; the code is in ", compiled.log)) == 1
    assert compiled.log.count("compiling model.pt2 for this processor, once") == 1


def test_a_second_start_takes_a_tenth_of_the_first_or_less(compiled: Compiled) -> None:
    begun = time.monotonic()
    assert answer(cached(compiled.archive, compiled.cache)).tolist() == (X * 2 + Y).tolist()
    assert time.monotonic() - begun <= compiled.start_s / 10


def test_results_are_those_of_the_program(compiled: Compiled) -> None:
    with torch.inference_mode():
        expected = torch.export.load(compiled.archive).module()(torch.from_numpy(X), torch.from_numpy(Y))
    np.testing.assert_array_equal(answer(cached(compiled.archive, compiled.cache)), expected.numpy())
    np.testing.assert_array_equal(answer(context(compiled.package)), expected.numpy())


@pytest.mark.parametrize("is_package", [False, True])
def test_shapes_that_would_read_beyond_an_input_are_refused(compiled: Compiled, is_package: bool) -> None:
    at = context(compiled.package) if is_package else cached(compiled.archive, compiled.cache)
    with running("pytorch", at, spec(TEXT)) as instance:
        with pytest.raises(InvalidArgumentError, match=r"no inputs of the shapes 'x' \[5\], 'y' \[2\]; it needs "):
            instance.execute({"x": X, "y": Y[:2]}, ("z",))
        assert instance.execute({"x": X[:1], "y": Y[:1]}, ("z",))["z"].tolist() == [10.0]


def test_a_batch_of_one_runs(compiled: Compiled) -> None:
    """Checks that AOTInductor compiles in itself would refuse it."""
    with running("pytorch", context(compiled.package), spec(BATCHED)) as instance:
        assert instance.execute({"x": X[:1], "y": Y[:1]}, ("z",))["z"].tolist() == [10.0]
        assert instance.execute({"x": X, "y": Y}, ("z",))["z"].tolist() == (X * 2 + Y).tolist()


@pytest.mark.parametrize("share", ["true", "false"])
def test_instances_run_at_once(compiled: Compiled, share: str) -> None:
    text = TEXT + f'parameters {{ key: "ENABLE_WEIGHT_SHARING" value {{ string_value: "{share}" }} }} '
    model = spec(text + "instance_group { count: 2 }")
    found: list[bool] = []
    with started("pytorch", cached(compiled.archive, compiled.cache), model) as backend:

        def ask() -> None:
            instance = backend.create_instance(group(model), 0)
            results = [instance.execute({"x": X + i, "y": Y}, ("z",))["z"] for i in range(200)]
            found.append(all((z == (X + i) * 2 + Y).all() for i, z in enumerate(results)))
            instance.close()

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == [True, True]


def test_code_runs_without_the_interpreter_lock_if_its_file_is_all_it_needs(compiled: Compiled, tmp_path: Path) -> None:
    run = load_runner("model", compiled.package, "cpu", 1)
    assert isinstance(run, CompiledCode)
    given = [torch.from_numpy(X), torch.from_numpy(Y)]
    assert run(given)[0].tolist() == (X * 2 + Y).tolist() and given == []
    with_more = tmp_path / "model.pt2"
    with zipfile.ZipFile(compiled.package) as package, zipfile.ZipFile(with_more, "w") as other:
        for name in package.namelist():
            other.writestr(name, package.read(name))
        (code,) = (name for name in package.namelist() if name.endswith(".so"))
        other.writestr(code.replace(".so", ".txt"), b"something else that the code may need")
    loader = load_runner("model", with_more, "cpu", 1)
    assert not isinstance(loader, CompiledCode)
    assert loader([torch.from_numpy(X), torch.from_numpy(Y)])[0].tolist() == (X * 2 + Y).tolist()


def test_code_is_loaded_once_and_leaves_no_file(compiled: Compiled) -> None:
    """The C library unloads no code with unique symbols, which this has, so each load would take memory anew."""
    before = mapped_code()
    runners = [load_runner("model", compiled.package, "cpu", 1) for _ in range(3)]
    mapped = mapped_code()
    for run in runners:
        assert run([torch.from_numpy(X), torch.from_numpy(Y)])[0].tolist() == (X * 2 + Y).tolist()
    # None if another test of this process has loaded it.
    assert len(mapped - before) <= 1
    assert mapped and all(name.endswith("(deleted)") for name in mapped)


def mapped_code() -> set[str]:
    """The files of compiled code that this process has mapped."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(None, 5)[5] for line in maps if "naiad-code-" in line}


@pytest.mark.parametrize(("first", "second"), [("INPUT__0", "INPUT__1"), ("ARGS[0]", "ARGS[1]"), ("x", "y")])
def test_names_of_a_package(compiled: Compiled, first: str, second: str) -> None:
    text = TEXT.replace('"x"', f'"{first}"').replace('"y"', f'"{second}"').replace('"z"', '"RESULT"')
    with running("pytorch", context(compiled.package), spec(text)) as instance:
        assert instance.execute({first: X, second: Y}, ("RESULT",))["RESULT"].tolist() == (X * 2 + Y).tolist()


def test_a_package_without_a_configuration_says_what_to_write(compiled: Compiled) -> None:
    text = refusal(context(compiled.package), 'platform: "torch_aoti"')
    assert 'input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ -1 ] }' in text
    assert 'output [ { name: "OUTPUT__0"' in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FIXED.replace("TYPE_FP32", "TYPE_INT32", 1), "says TYPE_INT32, the model has TYPE_FP32 (torch.float32)"),
        (
            FIXED.replace("dims: 5 }, {", "dims: [ 5, 2 ] }, {"),
            "2 axes where the model has 1",
        ),
        (
            FIXED.replace('name: "z" data_type: TYPE_FP32', 'name: "z" data_type: TYPE_INT64'),
            "says TYPE_INT64, the model has",
        ),
        (
            FIXED.replace('"z" data_type: TYPE_FP32 dims: 5', '"z" data_type: TYPE_FP32 dims: 4'),
            "axis 0 is 4 where the model has 5",
        ),
    ],
)
def test_a_configuration_that_contradicts_a_package(compiled: Compiled, text: str, words: str) -> None:
    assert words in refusal(context(compiled.package), text)


def changed_metadata(package: Path, target: Path, **values: str) -> Path:
    with zipfile.ZipFile(package) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as written:
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("wrapper_metadata.json"):
                content = json.dumps({**json.loads(content), **values}).encode()
            written.writestr(name, content)
    return target


def test_a_package_for_another_machine_is_refused(compiled: Compiled, tmp_path: Path) -> None:
    gpu = changed_metadata(compiled.package, tmp_path / "gpu.pt2", AOTI_DEVICE_KEY="cuda")
    assert "was compiled for the device 'cuda', and its instance group is on 'cpu'" in refusal(context(gpu), TEXT)
    amx = changed_metadata(compiled.package, tmp_path / "amx.pt2", AOTI_CPU_ISA="AVX512 AMX")
    has = torch.cpu.get_capabilities()
    if lacking := [name for name, key in (("AVX512", "avx512_f"), ("AMX", "amx_tile")) if not has.get(key)]:
        said = f"for a processor with AVX512 AMX, and this one lacks {', '.join(lacking)}"
        assert said in refusal(context(amx), TEXT)


@pytest.mark.parametrize("cut", [0.0, 0.5, 0.99])
def test_a_damaged_package_is_refused(compiled: Compiled, tmp_path: Path, cut: float) -> None:
    content = compiled.package.read_bytes()
    path = tmp_path / "model.pt2"
    path.write_bytes(content[: int(len(content) * cut)])
    assert f"{path} cannot be read" in refusal(context(path), TEXT)


def test_a_folder_without_a_configuration_is_served(compiled: Compiled, tmp_path: Path) -> None:
    folder = tmp_path / "models" / "net" / "1"
    folder.mkdir(parents=True)
    shutil.copy(compiled.archive, folder / "model.pt2")
    with serving(
        tmp_path / "log", tmp_path / "models", f"--backend-config=pytorch,compile-cache={compiled.cache}"
    ) as server:
        inputs = [
            {"name": f"INPUT__{i}", "shape": [1, 1], "datatype": "FP32", "data": [value]}
            for i, value in enumerate((3, 4))
        ]
        answer = server.post("/v2/models/net/infer", {"inputs": inputs})
        assert answer.status == 200, answer.body
        assert answer.json()["outputs"] == [{"name": "OUTPUT__0", "datatype": "FP32", "shape": [1, 1], "data": [10.0]}]
        assert "was compiled before" in server.log and "Warning" not in server.log


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    archive = torch_programs.linear(tmp_path / "model.pt2")
    text = TEXT.replace(', { name: "y" data_type: TYPE_FP32 dims: -1 }', "").replace("dims: -1", "dims: [ -1, -1 ]")
    found = refusal(cached(archive, tmp_path / "cache"), text)
    assert "cannot be compiled" in found and "ended with exit code" in found
    assert not list((tmp_path / "cache").glob("*.pt2"))


def test_files_of_the_compiler_outlive_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_inductor_files()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "naiad" / "compiled" / "inductor")
    assert (tmp_path / "naiad" / "compiled" / "inductor").is_dir()


def test_a_folder_that_cannot_be_made_leaves_the_compiler_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "naiad").write_text("in the way")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_inductor_files()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
