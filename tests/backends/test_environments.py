"""Environments of Python models: packed ones, folders, interpreters, and those made from requirements."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from naiad.backends.environments import archive as archives
from naiad.backends.environments.environment import Environment, resolve
from naiad.errors import ModelLoadError
from support.python_environments import claiming, make_venv, make_wheel, pack, write_script

OWN = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Unpacked environments go to a folder of the test, and are this test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    archives.shared_archives.cache_clear()
    yield folder
    archives.shared_archives().close()
    archives.shared_archives.cache_clear()
    assert list(folder.glob("naiad-environments-*")) == []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    return folder


def ask(environment: Environment, expression: str) -> Any:
    """What an expression is in the environment's interpreter, asked as a child would be started."""
    code = f"import json, os, sys; print(json.dumps({expression}))"
    command = [str(environment.python), "-c", code]
    done = subprocess.run(command, env=dict(environment.env), capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def refused(model: Path, parameters: Mapping[str, str], settings: Mapping[str, str] = {}) -> str:
    """The text of the error that a model with these parameters gets."""
    with pytest.raises(ModelLoadError) as caught:
        resolve(model, parameters, settings)
    return str(caught.value)


def test_without_a_wish_it_is_the_server_s_own(model: Path) -> None:
    found = resolve(model, {"other": "x"}, {})
    assert found == Environment(Path(sys.executable), dict(os.environ))


def test_a_stub_of_the_reference_is_remarked_on(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_script(model / "triton_python_backend_stub", "exit 1")
    assert resolve(model, {}, {}).python == Path(sys.executable)
    assert "triton_python_backend_stub is not used" in caplog.text


@pytest.mark.parametrize("other", ["environment", "python"])
def test_one_environment_is_enough(model: Path, other: str) -> None:
    text = refused(model, {"EXECUTION_ENV_PATH": "/x", other: "y"})
    assert text == f"model 'm' has the parameters 'EXECUTION_ENV_PATH' and '{other}': it can have one of them"


# Packed environments


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment as an archive, and once more with a folder around it."""
    folder = tmp_path_factory.mktemp("packed")
    venv = make_venv(folder / "venv")
    pack(venv, folder / "inner.tar.gz", "my-environment")
    return pack(venv, folder / "env.tar.gz")


@pytest.mark.parametrize("name", ["env.tar.gz", "inner.tar.gz"])
def test_an_archive_is_unpacked_and_used(model: Path, packed: Path, temporary: Path, name: str) -> None:
    found = resolve(model, {"EXECUTION_ENV_PATH": str(packed.with_name(name))}, {})
    prefix = found.python.parent.parent
    assert prefix.is_relative_to(temporary)
    assert ask(found, "[sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH'].split(':')[0]]") == [
        str(prefix),
        str(prefix),
        str(prefix / "bin"),
    ]
    assert ask(found, "__import__('numpy').arange(3).tolist()") == [0, 1, 2]


def test_an_archive_in_the_model_s_folder(model: Path, packed: Path) -> None:
    (model / "env").mkdir()
    os.link(packed, model / "env" / "own.tar.gz")
    found = resolve(model, {"EXECUTION_ENV_PATH": "$$TRITON_MODEL_DIRECTORY/env/own.tar.gz"}, {})
    assert ask(found, "1") == 1


def test_models_share_an_archive_until_it_changes(model: Path, packed: Path, tmp_path: Path, temporary: Path) -> None:
    archive = tmp_path / "shared.tar.gz"
    os.link(packed, archive)
    link = tmp_path / "link.tar.gz"
    link.symlink_to(archive)
    wish = {"EXECUTION_ENV_PATH": str(archive)}
    first, second = resolve(model, wish, {}), resolve(model, {"EXECUTION_ENV_PATH": str(link)}, {})
    assert first.python == second.python
    os.utime(archive, ns=(1, 1))
    third = resolve(model, wish, {})
    assert third.python != first.python
    # The old one stays for those who use it, and goes when something is unpacked later.
    assert ask(first, "1") == 1
    old = first.python.parent.parent
    del first, second
    os.utime(archive, ns=(2, 2))
    assert resolve(model, wish, {}).python != third.python
    assert not old.exists()
    assert third.python.exists()


def test_archives_are_unpacked_once_however_many_ask(model: Path, packed: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    found: list[Path] = []
    wish = {"EXECUTION_ENV_PATH": str(packed)}
    threads = [threading.Thread(target=lambda: found.append(resolve(model, wish, {}).python)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert caplog.text.count("Extracting Python execution env") == 1


def test_what_is_no_archive_is_refused_and_leaves_nothing(model: Path, packed: Path, temporary: Path) -> None:
    broken = temporary / "broken.tar.gz"
    broken.write_bytes(packed.read_bytes()[: packed.stat().st_size // 2])
    text = refused(model, {"EXECUTION_ENV_PATH": str(broken)})
    assert text.startswith(f"model 'm': the environment {broken} cannot be unpacked: tar ended with exit code ")
    assert "gzip" in text or "EOF" in text
    (root,) = temporary.glob("naiad-environments-*")
    assert [entry.name for entry in root.iterdir()] == [".in-use"]


def test_archives_are_read_without_tar_too(
    model: Path, packed: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(temporary))
    found = resolve(model, {"EXECUTION_ENV_PATH": str(packed)}, {})
    assert ask(found, "__import__('numpy').__name__") == "numpy"
    broken = temporary / "broken.tar.gz"
    broken.write_bytes(b"no archive")
    assert f"the environment {broken} cannot be unpacked: " in refused(model, {"EXECUTION_ENV_PATH": str(broken)})


def test_an_archive_without_an_interpreter(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    archive = pack(tmp_path / "empty", tmp_path / "empty.tar.gz")
    text = f"model 'm': the environment {archive} has no bin/python that can be run"
    assert refused(model, {"EXECUTION_ENV_PATH": str(archive)}) == text


@pytest.mark.parametrize("has_tar", [True, False])
@pytest.mark.parametrize("way", ["parent", "absolute", "link"])
def test_an_archive_writes_nothing_elsewhere(
    model: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, has_tar: bool
) -> None:
    if not has_tar:
        monkeypatch.setenv("PATH", str(temporary))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = {"parent": "../../../elsewhere/x", "absolute": str(elsewhere / "x"), "link": "link/x"}
    archive = tmp_path / "evil.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        if way == "link":
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, str(elsewhere)
            packed.addfile(link)
        packed.addfile(tarfile.TarInfo(names[way]))
    text = refused(model, {"EXECUTION_ENV_PATH": str(archive)})
    assert text.startswith(f"model 'm': the environment {archive} ")
    assert "cannot be unpacked" in text or way != "parent"
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("env.tar.gz", 'is "env.tar.gz", expected an absolute path or one that begins with $$TRITON_MODEL_DIRECTORY'),
        ("/nowhere/env.tar.gz", "the environment /nowhere/env.tar.gz cannot be read: No such file or directory"),
    ],
)
def test_paths_that_lead_nowhere(model: Path, path: str, text: str) -> None:
    assert text in refused(model, {"EXECUTION_ENV_PATH": path})


_USE_ARCHIVE = """
import os, sys
from pathlib import Path
from naiad.backends.environments.environment import resolve
print(resolve(Path("m"), {"EXECUTION_ENV_PATH": sys.argv[1]}, {}).python, flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
if sys.argv[2] == "abort":
    os._exit(1)
"""


def use_archive(archive: Path, temporary: Path, then: str) -> subprocess.Popen[str]:
    """Another process that unpacks an archive and ends, is ended, or waits for the end of its input."""
    command = [sys.executable, "-c", _USE_ARCHIVE, str(archive), then]
    env = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


@pytest.mark.slow
def test_a_server_s_archives_go_with_it_and_others_are_left_alone(packed: Path, temporary: Path, model: Path) -> None:
    with use_archive(packed, temporary, "wait") as waiting:
        assert waiting.stdout is not None
        used = Path(waiting.stdout.readline().strip())
        # Behind the other, which would remove what this one leaves.
        with use_archive(packed, temporary, "abort") as aborted:
            assert aborted.stdout is not None
            left = Path(aborted.stdout.readline().strip())
            aborted.wait(60)
        assert left.exists()
        resolve(model, {"EXECUTION_ENV_PATH": str(packed)}, {})
        assert not left.exists()
        assert used.exists()
        waiting.communicate(timeout=60)
    assert not used.exists()


# Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_venv(tmp_path / "environment")


def test_a_folder_is_used_as_it_is(model: Path, folder: Path, temporary: Path) -> None:
    found = resolve(model, {"EXECUTION_ENV_PATH": str(folder)}, {})
    assert found.python == folder / "bin" / "python"
    assert ask(found, "sys.prefix") == str(folder)
    assert list(temporary.iterdir()) == []


def test_its_activate_script_is_heard(model: Path, folder: Path) -> None:
    (folder / "bin" / "activate").write_text(
        'export OWN="two\nlines"; export PATH=/else:$PATH; echo noise; unset HOME\n'
    )
    found = resolve(model, {"EXECUTION_ENV_PATH": str(folder)}, {})
    assert found.env["OWN"] == "two\nlines"
    assert found.env["PATH"].split(":")[:2] == [str(folder / "bin"), "/else"]
    assert "HOME" not in found.env


def test_an_activate_script_that_fails(model: Path, folder: Path) -> None:
    (folder / "bin" / "activate").write_text("exit 3\n")
    text = refused(model, {"EXECUTION_ENV_PATH": str(folder)})
    assert text.startswith(f"model 'm': the environment {folder} cannot be activated: bash ended with exit code 3")


def test_its_libraries_are_found_first(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/else")
    (folder / "lib" / "libown.so.1").touch()
    found = resolve(model, {"EXECUTION_ENV_PATH": str(folder)}, {})
    assert found.env["LD_LIBRARY_PATH"] == f"{folder / 'lib'}:/else"


def test_conda_unpack_is_run_once(model: Path, folder: Path) -> None:
    (folder / "conda-meta").mkdir()
    script = folder / "bin" / "conda-unpack"
    script.write_text("import os, sys\nopen(os.path.join(sys.prefix, 'runs'), 'a').write('run ')\n")
    for _ in range(2):
        found = resolve(model, {"EXECUTION_ENV_PATH": str(folder)}, {})
    assert (folder / "runs").read_text() == "run "
    assert found.env["CONDA_PREFIX"] == str(folder)
    # At another place it has to be run again.
    moved = folder.rename(folder.with_name("moved"))
    resolve(model, {"EXECUTION_ENV_PATH": str(moved)}, {})
    assert (moved / "runs").read_text() == "run run "


def test_a_conda_unpack_that_fails(model: Path, folder: Path) -> None:
    (folder / "conda-meta").mkdir()
    (folder / "bin" / "conda-unpack").write_text("raise SystemExit('no such prefix')\n")
    text = refused(model, {"EXECUTION_ENV_PATH": str(folder)})
    assert text.endswith("cannot be fitted to its place: python ended with exit code 1:\nno such prefix")


def test_numpy_has_to_be_there(model: Path, tmp_path: Path) -> None:
    bare = make_venv(tmp_path / "bare", numpy=False)
    for wish in ({"EXECUTION_ENV_PATH": str(bare)}, {"python": str(bare / "bin" / "python")}):
        text = refused(model, wish)
        assert text.startswith("model 'm': numpy is missing in Python ")
        assert text.endswith(f"run: {bare / 'bin' / 'python'} -m pip install numpy")


# Interpreters


def test_an_interpreter_by_its_version_or_its_path(model: Path, folder: Path) -> None:
    for text in (OWN, f"python{OWN}", ".".join(map(str, sys.version_info[:3]))):
        assert resolve(model, {"python": text}, {}).python == Path(sys.executable)
    assert resolve(model, {"python": str(folder / "bin" / "python")}, {}).python == folder / "bin" / "python"
    (model / "own").symlink_to(folder)
    found = resolve(model, {"python": "$$TRITON_MODEL_DIRECTORY/own/bin/python"}, {})
    assert ask(found, "sys.version_info[:2]") == list(sys.version_info[:2])


@pytest.mark.slow
def test_interpreters_are_found_on_the_path_in_pyenv_and_in_uv(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyenv, uv, bin_folder = tmp_path / "pyenv", tmp_path / "uv", tmp_path / "bin"
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(uv))
    monkeypatch.setenv("PATH", str(bin_folder), prepend=os.pathsep)
    old = claiming(pyenv / "versions" / "3.77.9" / "bin" / "python3", "3.77.9")
    new = claiming(pyenv / "versions" / "3.77.10" / "bin" / "python3", "3.77.10")
    bare = claiming(bin_folder / "python3.78", "3.78.0", numpy=False)
    other = claiming(uv / "cpython-3.78.2-linux" / "bin" / "python3", "3.78.2")
    # A shim of a version that is not active.
    write_script(bin_folder / "python3.77", "echo 'pyenv: python3.77: command not found' >&2; exit 127")
    assert resolve(model, {"python": "3.77"}, {}).python == new
    assert resolve(model, {"python": "3.77.9"}, {}).python == old
    assert resolve(model, {"python": "3.78"}, {}).python == other
    other.unlink()
    assert f"numpy is missing in Python 3.78.0 ({bare})" in refused(model, {"python": "3.78"})
    text = refused(model, {"python": "3.79"})
    assert text.startswith("model 'm': no Python 3.79 was found on the PATH, in pyenv or in uv; found: ")
    assert f"3.77.9 ({old}), 3.77.10 ({new}), 3.78.0 ({bare})" in text
    assert sys.executable in text


@pytest.mark.parametrize(
    ("python", "text"),
    [
        ("three", "'three' is no version of Python, expected one such as 3.9"),
        ("3", "'3' is no version of Python, expected one such as 3.9"),
        ("/nowhere/python", "/nowhere/python cannot be used as a Python interpreter: "),
        ("/bin/false", "/bin/false cannot be used as a Python interpreter: false ended with exit code 1"),
        ("/bin/true", "/bin/true cannot be used as a Python interpreter: it does not answer as one"),
    ],
)
def test_what_is_no_interpreter(model: Path, python: str, text: str) -> None:
    assert f"model 'm': {text}" in refused(model, {"python": python})


def test_an_interpreter_that_is_too_old(model: Path, tmp_path: Path) -> None:
    old = claiming(tmp_path / "old", "3.7.16")
    assert refused(model, {"python": str(old)}).endswith("it is 3.7.16, models need 3.8 or later")


# Environments made from requirements


@pytest.fixture
def offline(model: Path) -> Path:
    """Requirements that need no network; ``numpy`` among them is a stand-in."""
    make_wheel(model, "tiny")
    make_wheel(model, "numpy", "2.0")
    requirements = model / "requirements.txt"
    requirements.write_text("--no-index\n./tiny-1.0-py3-none-any.whl\n./numpy-2.0-py3-none-any.whl # a comment\n")
    return requirements


WISH = {"environment": "requirements.txt"}


@pytest.mark.slow
def test_an_environment_is_made_once(model: Path, offline: Path, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    cache = tmp_path / "cache"
    settings = {"environment-cache": str(cache)}
    found: list[Environment] = []
    threads = [threading.Thread(target=lambda: found.append(resolve(model, WISH, settings))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert len(found) == 3
    assert found[0] == found[1] == found[2]
    assert caplog.text.count("making an environment") == 1
    prefix = found[0].python.parent.parent
    assert prefix.parent == cache
    assert ask(found[0], "[__import__('tiny').__version__, sys.prefix]") == ["1.0", str(prefix)]
    assert found[0].env["PATH"].split(":")[0] == str(prefix / "bin")


@pytest.mark.slow
def test_what_a_killed_server_left_half_made_is_made_anew(model: Path, offline: Path, tmp_path: Path) -> None:
    settings = {"environment-cache": str(tmp_path / "cache")}
    found = resolve(model, WISH, settings)
    prefix = found.python.parent.parent
    (prefix / "naiad.json").unlink()
    (prefix / "half").touch()
    assert resolve(model, WISH, settings) == found
    assert not (prefix / "half").exists()
    assert ask(found, "__import__('tiny').__version__") == "1.0"


def test_what_an_environment_is_made_from_decides_which_it_is(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (model / "requirements.txt").write_text("--no-index\n-r more.txt\n--constraint=limits.txt\n")
    (model / "more.txt").write_text("-r requirements.txt\nnowhere\n")
    limits = model / "limits.txt"
    limits.write_text("nowhere<1\n")
    python = claiming(tmp_path / "bin" / "python", "3.77.0")
    seen = set()
    for change in (lambda: None, lambda: limits.write_text("nowhere<2\n"), lambda: claiming(python, "3.77.1")):
        change()
        refused(model, {**WISH, "python": str(python)}, {"environment-cache": str(cache)})
        names = {path.stem for path in cache.glob("*.lock")}
        assert len(names - seen) == 1
        seen = names


@pytest.mark.slow
def test_requirements_that_cannot_be_met(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (model / "requirements.txt").write_text("--no-index\nno-such-package==9\n")
    text = refused(model, WISH, {"environment-cache": str(cache)})
    assert text.startswith(f"model 'm': the environment of {model / 'requirements.txt'} cannot be made: ")
    assert "no-such-package" in text
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_requirements_that_are_not_there(model: Path) -> None:
    text = refused(model, WISH)
    assert text == f"model 'm': parameter 'environment' names {model / 'requirements.txt'}, and there is no such file"


def test_a_cache_that_cannot_be_made(model: Path, offline: Path) -> None:
    text = refused(model, WISH, {"environment-cache": str(offline / "cache")})
    assert text == (
        f"model 'm': the folder for environments {offline / 'cache'} cannot be made: Not a directory; "
        "--backend-config=environment-cache=<folder> names another one"
    )


@pytest.mark.slow
def test_an_environment_with_packages_from_the_index(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (model / "requirements.txt").write_text("six\n")
    found = resolve(model, WISH, {})
    assert found.python.is_relative_to(tmp_path / "naiad" / "environments")
    assert ask(found, "[__import__('six').__name__, __import__('numpy').arange(2).tolist()]") == ["six", [0, 1]]
