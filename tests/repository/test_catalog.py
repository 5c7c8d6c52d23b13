"""Looking for one model, and whether its files are still the same."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from naiad.errors import InvalidArgumentError, ModelLoadError, OptionError
from naiad.repository.catalog import Catalog
from naiad.repository.changes.fingerprint import fingerprint


def model(repository: Path, name: str, versions: tuple[int, ...] = (1,)) -> Path:
    for version in versions:
        (repository / name / str(version)).mkdir(parents=True)
    return repository / name


def test_a_model_is_found_in_any_repository(tmp_path: Path) -> None:
    model(tmp_path / "a", "one")
    model(tmp_path / "b", "two", (1, 3))
    catalog = Catalog((tmp_path / "a", tmp_path / "b"))
    assert catalog.find("one").directory == tmp_path / "a" / "one"
    assert sorted(catalog.find("two").versions) == [1, 3]
    assert catalog.names() == {"one", "two"}
    model(tmp_path / "a", "three")
    assert catalog.find("three").name == "three"


def test_a_model_is_found_among_the_paths(tmp_path: Path) -> None:
    (tmp_path / "file.onnx").touch()
    (tmp_path / "other.onnx").touch()
    alone = model(tmp_path, "alone")
    model(tmp_path / "more", "held")
    catalog = Catalog(paths=(tmp_path / "file.onnx", tmp_path / "other.onnx", alone, tmp_path / "more"))
    assert catalog.find("file").single_file == tmp_path / "file.onnx"
    assert catalog.find("alone").directory == alone
    assert catalog.find("held").name == "held"
    (tmp_path / "other.onnx").unlink()
    assert catalog.find("file").name == "file"
    with pytest.raises(ModelLoadError):
        catalog.find("other")


def test_what_cannot_be_found(tmp_path: Path) -> None:
    model(tmp_path / "a", "both")
    model(tmp_path / "b", "both")
    model(tmp_path / "a", ".hidden")
    # The root of a disk has it.
    model(tmp_path / "a", "lost+found")
    (tmp_path / "a" / "plain").touch()
    catalog = Catalog((tmp_path / "a", tmp_path / "b"))
    with pytest.raises(ModelLoadError, match="model appears in two or more repositories"):
        catalog.find("both")
    for name in ("nope", "plain", ".hidden", "lost+found"):
        with pytest.raises(ModelLoadError, match=re.escape(f"no model of the name '{name}'")):
            catalog.find(name)
    for name in ("", "..", "../a"):
        with pytest.raises(InvalidArgumentError):
            catalog.find(name)
    with pytest.raises(OptionError, match="does not exist"):
        Catalog((tmp_path / "gone",)).find("nope")


def test_a_fingerprint_tells_files_apart(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    file = folder / "1" / "model.py"
    file.write_text("a")
    source = Catalog((tmp_path,)).find("m")
    first = fingerprint(source)
    assert fingerprint(source) == first
    (folder / "1" / "__pycache__").mkdir()
    (folder / "1" / "__pycache__" / "model.pyc").touch()
    assert fingerprint(source) == first
    file.write_text("ab")
    second = fingerprint(source)
    os.utime(file, ns=(0, 0))
    third = fingerprint(source)
    (folder / "2").mkdir()
    fourth = fingerprint(source)
    file.unlink()
    assert len({first, second, third, fourth, fingerprint(source)}) == 5


def test_links_count_and_circles_end(tmp_path: Path) -> None:
    folder = model(tmp_path / "models", "m")
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "model.py").write_text("a")
    (folder / "2").symlink_to(tmp_path / "away")
    (folder / "1" / "circle").symlink_to(folder)
    (folder / "1" / "nowhere").symlink_to(tmp_path / "gone")
    source = Catalog((tmp_path / "models",)).find("m")
    first = fingerprint(source)
    (tmp_path / "away" / "model.py").write_text("ab")
    assert fingerprint(source) != first


def test_a_single_file_has_one_too(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_text("a")
    source = Catalog(paths=(file,)).find("m")
    first = fingerprint(source)
    file.write_text("ab")
    assert fingerprint(source) != first
