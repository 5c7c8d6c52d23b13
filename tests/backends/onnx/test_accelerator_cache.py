"""What accelerators have built is kept, found again, and made anew where it does not fit or is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from naiad.backends.onnx.accelerator_cache import accelerator_cache, build_folder, with_builds
from naiad.backends.onnx.accelerators import ON_CPU, ON_GPU, Acceleration
from naiad.errors import ModelLoadError
from support.driver_libraries import asked, needs_compiler, write_driver

OPENVINO = Acceleration(ON_CPU["openvino"], {"num_streams": "1"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model with data beside it."""
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "weights.bin").write_bytes(b"weights")
    return folder / "model.onnx"


def test_the_folder_depends_on_all_that_a_build_is_made_from(tmp_path: Path, file: Path) -> None:
    def folder(acceleration: Acceleration = OPENVINO, version: str = "1.0", device: int | None = None) -> Path:
        return build_folder(tmp_path, file, acceleration, version, device)

    found = [
        folder(),
        folder(version="1.1"),
        folder(device=0),
        folder(Acceleration(ON_CPU["openvino"], {"num_streams": "2"})),
        folder(Acceleration(ON_GPU["tensorrt"], {})),
    ]
    assert folder() == found[0]
    file.write_bytes(b"another graph")
    found.append(folder())
    (file.parent / "weights.bin").write_bytes(b"more weights")
    found.append(folder())
    assert len(set(found)) == len(found) and all(each.parent == tmp_path for each in found)


@needs_compiler
def test_the_folder_is_that_of_the_kind_of_gpu(tmp_path: Path, file: Path) -> None:
    code = f"""
from pathlib import Path
from naiad.backends.onnx.accelerator_cache import build_folder
from naiad.backends.onnx.accelerators import ON_GPU, Acceleration
for number in (0, 1, 99):
    print(build_folder(Path("all"), Path({str(file)!r}), Acceleration(ON_GPU["tensorrt"], {{}}), "1.0", number))
"""
    # The driver that stands in has two GPUs of different kinds.
    found = asked(code, write_driver(tmp_path)).splitlines()
    without = asked(code, None).splitlines()
    assert len(set(found)) == 3
    assert not set(found[:2]) & set(without) and found[2] == without[2]


def test_the_folder_of_all_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert accelerator_cache(None) == tmp_path / "naiad" / "accelerated"
    assert accelerator_cache(str(tmp_path / "own")) == tmp_path / "own"


def test_a_configuration_that_says_where_it_caches_is_left_alone() -> None:
    own = Acceleration(ON_GPU["tensorrt"], {"trt_engine_cache_path": "/mine"})
    assert own.caches_itself() and not OPENVINO.caches_itself()
    assert OPENVINO.with_cache("/here").options == {"cache_dir": "/here", "num_streams": "1"}


class Builder:
    """Makes a session, and what it builds, unless that is there; as accelerators do."""

    def __init__(self, folder: Path, error: ModelLoadError | None = None) -> None:
        self.folder = folder
        self.built = 0
        self.error = error

    def __call__(self) -> str:
        blob = self.folder / "a.blob"
        if not blob.exists():
            self.built += 1
            blob.write_bytes(b"program")
        elif self.error is not None:
            raise self.error
        return "session"


@pytest.fixture
def build(tmp_path: Path) -> Callable[[], Builder]:
    return lambda: Builder(tmp_path / "cache" / "key")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def run(builder: Builder) -> str:
    made: str = with_builds("m", "OpenVINO", builder.folder, builder)
    return made


def test_a_build_is_made_once(build: Callable[[], Builder], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "naiad")
    first, second = build(), build()
    assert run(first) == run(second) == "session"
    assert (first.built, second.built) == (1, 0)
    assert lines(caplog) == [f"model 'm': OpenVINO builds what it runs, once; it is kept in {first.folder}"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "a.blob").write_bytes(b"prog"), "a.blob has changed"),
        (lambda folder: (folder / "a.blob").unlink(), "a.blob is missing"),
        (lambda folder: (folder / "naiad.json").write_text("{"), "naiad.json is damaged"),
    ],
)
def test_a_damaged_build_is_made_anew_with_one_line(
    build: Callable[[], Builder], caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], reason: str
) -> None:
    caplog.set_level(logging.INFO, "naiad")
    run(build())
    folder = build().folder
    damage(folder)
    caplog.clear()
    again = build()
    assert run(again) == "session" and again.built == 1
    text = f"model 'm': what OpenVINO had built cannot be used ({reason}), it is built anew in {folder}"
    assert lines(caplog) == [text]
    assert (folder / "a.blob").read_bytes() == b"program"
    last = build()
    assert run(last) == "session" and (last.built, lines(caplog)) == (0, [])


def test_a_build_that_the_accelerator_refuses_is_made_anew(
    build: Callable[[], Builder], caplog: pytest.LogCaptureFixture
) -> None:
    run(build())
    caplog.clear()
    refused = Builder(build().folder, ModelLoadError("this engine is of another version"))
    assert run(refused) == "session" and refused.built == 1
    (text,) = lines(caplog)
    assert "cannot be used (this engine is of another version), it is built anew" in text


def test_a_build_that_the_accelerator_replaces_itself_is_one_line(
    build: Callable[[], Builder], caplog: pytest.LogCaptureFixture
) -> None:
    """As OpenVINO does with a program of another version."""
    run(build())
    folder = build().folder

    def replace() -> str:
        (folder / "a.blob").write_bytes(b"program of this version")
        return "session"

    caplog.clear()
    assert with_builds("m", "OpenVINO", folder, replace) == "session"
    (text,) = lines(caplog)
    assert "cannot be used (OpenVINO refused it: a.blob has changed), it is built anew" in text
    # The same once more is what it accepts.
    assert with_builds("m", "OpenVINO", folder, replace) == "session"
    assert lines(caplog) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ModelLoadError, match=r"cannot be made: Not a directory.*accelerator-cache=<folder> names another"
    ):
        with_builds("m", "OpenVINO", tmp_path / "file" / "key", lambda: None)
