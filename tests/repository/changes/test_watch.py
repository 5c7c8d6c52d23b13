"""What a look at the repositories finds, on real folders that change in between."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from naiad.config.source import ModelSource
from naiad.repository.catalog import Catalog
from naiad.repository.changes import contents, fingerprint
from naiad.repository.changes.contents import FileHashes, look_at, unchanged_versions
from naiad.repository.changes.watch import RESTS, Findings, Outcome, Watch
from support.kept_objects import kept


def model(repository: Path, name: str, text: str = "a", versions: tuple[int, ...] = (1,)) -> Path:
    """A model whose files hold ``text``."""
    folder = repository / name
    for version in versions:
        (folder / str(version)).mkdir(parents=True, exist_ok=True)
        (folder / str(version) / "model.onnx").write_text(text)
    (folder / "config.pbtxt").write_text(text)
    return folder


def pass_tick(probe: Path) -> None:
    """Wait until files that are written get another time: looks come seconds apart, and a tick takes milliseconds."""
    probe.touch()
    first = probe.stat().st_mtime_ns
    while probe.stat().st_mtime_ns == first:
        probe.touch()


class Looks:
    """A watch whose models all serve as they were tried, unless they are in ``unsettled``."""

    def __init__(self, *repositories: Path, paths: tuple[Path, ...] = ()) -> None:
        self.catalog = Catalog(repositories, paths)
        self.watch = Watch(self.catalog)
        self.unsettled: set[str] = set()
        place = (*repositories, *paths)[0].absolute()
        self.probe = place.parent / f".{place.name}-probe"

    def look(self, *busy: str, outcome: Outcome = Outcome.SERVES) -> Findings:
        found = self.watch.look(busy, lambda name: name not in self.unsettled)
        for change in found.changes:
            self.watch.note(change.name, outcome)
        pass_tick(self.probe)
        return found

    def changes(self, **more: Outcome) -> dict[str, set[int]]:
        """What a look finds, by name with the versions that are as before."""
        return {change.name: set(change.unchanged) for change in self.look(**more).changes}

    def settled(self, **more: Outcome) -> dict[str, set[int]]:
        """What the look finds after one that sees the change."""
        assert self.changes() == {}
        return self.changes(**more)

    def begin(self) -> Looks:
        """The models of the start are loaded, and one look has read their content."""
        listing = self.catalog.listing()
        self.watch.begin(listing.models, listing.unavailable)
        assert self.changes() == {}
        return self


def test_a_new_model_is_taken_up_when_it_lies_still(tmp_path: Path) -> None:
    looks = Looks(tmp_path).begin()
    folder = model(tmp_path, "m")
    found = looks.look()
    assert found.changes == ()
    assert found.is_moving
    assert found.names == {"m"}
    (folder / "1" / "model.onnx").write_text("more")
    assert looks.changes() == {}
    found = looks.look()
    assert [change.name for change in found.changes] == ["m"]
    assert not found.is_moving
    assert looks.changes() == {}


def test_the_models_of_the_start_are_no_change(tmp_path: Path) -> None:
    model(tmp_path, "m")
    looks = Looks(tmp_path).begin()
    assert looks.changes() == {}


def test_what_changes_while_the_server_starts_is_found(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path)
    looks.begin()
    (folder / "config.pbtxt").write_text("other")
    assert looks.settled() == {"m": set()}


def test_only_other_content_is_a_change(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path).begin()
    file = folder / "1" / "model.onnx"
    file.touch()
    assert looks.settled() == {}
    shutil.copytree(folder, tmp_path / ".new")
    shutil.rmtree(folder)
    (tmp_path / ".new").rename(folder)
    assert looks.settled() == {}
    # As large as before, and of the same time.
    before = file.stat()
    file.write_text("b")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert looks.settled() == {"m": set()}
    file.write_text("a")
    assert looks.settled() == {"m": set()}


def test_a_touch_tries_a_model_again_that_failed(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path)
    looks.unsettled.add("m")
    assert looks.settled(outcome=Outcome.FAILED) == {"m": set()}
    assert looks.changes() == {}
    (folder / "config.pbtxt").touch()
    assert looks.settled(outcome=Outcome.FAILED) == {"m": set()}


def test_versions_that_are_as_before_are_told(tmp_path: Path) -> None:
    folder = model(tmp_path, "m", versions=(1, 2))
    looks = Looks(tmp_path).begin()
    model(tmp_path, "m", versions=(3,))
    assert looks.settled() == {"m": {1, 2}}
    shutil.rmtree(folder / "1")
    assert looks.settled() == {"m": {2, 3}}
    (folder / "2" / "more").write_text("more")
    assert looks.settled() == {"m": {3}}
    (folder / "labels.txt").write_text("more")
    assert looks.settled() == {"m": set()}
    (folder / "labels.txt").write_text("other")
    assert looks.settled() == {"m": set()}


def test_a_failed_change_that_is_taken_back(tmp_path: Path) -> None:
    """All versions are as what serves, though the last try was another one."""
    folder = model(tmp_path, "m", versions=(1, 2))
    looks = Looks(tmp_path).begin()
    (folder / "config.pbtxt").write_text("broken")
    looks.unsettled.add("m")
    assert looks.settled(outcome=Outcome.FAILED) == {"m": set()}
    (folder / "config.pbtxt").write_text("a")
    assert looks.settled() == {"m": {1, 2}}
    looks.unsettled.clear()
    assert looks.changes() == {}


def test_what_could_not_be_tried_is_found_again(tmp_path: Path) -> None:
    looks = Looks(tmp_path)
    model(tmp_path, "m")
    assert looks.settled(outcome=Outcome.NOT_NOW) == {"m": set()}
    assert looks.changes(outcome=Outcome.NOT_NOW) == {"m": set()}
    assert looks.changes() == {"m": set()}
    assert looks.changes() == {}


def test_a_busy_model_waits(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path).begin()
    (folder / "config.pbtxt").write_text("b")
    assert looks.look("m").changes == ()
    assert looks.look("m").changes == ()
    assert looks.changes() == {"m": set()}
    shutil.rmtree(folder)
    for _ in range(3):
        assert looks.look("m").removed == ()
    assert looks.look().removed == ("m",)


def test_a_model_is_gone_when_two_looks_miss_it(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path).begin()
    folder.rename(tmp_path / ".away")
    found = looks.look()
    assert found.removed == ()
    assert found.is_moving
    assert found.names == {"m"}
    (tmp_path / ".away").rename(folder)
    assert looks.settled() == {}
    shutil.rmtree(folder)
    assert looks.look().removed == ()
    found = looks.look()
    assert found.removed == ("m",)
    assert found.names == frozenset()
    assert looks.look().removed == ()


def test_a_repository_that_cannot_be_read_says_nothing_about_its_models(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    model(first, "a")
    folder = model(second, "b")
    looks = Looks(first, second).begin()
    first.rename(tmp_path / "away")
    (folder / "config.pbtxt").write_text("b")
    for _ in range(3):
        found = looks.look()
        assert found.removed == ()
        assert list(found.unreadable) == [first]
        assert "does not exist" in found.unreadable[first]
        assert found.names == {"a", "b"}
    (tmp_path / "away").rename(first)
    found = looks.look()
    assert not found.unreadable
    assert looks.changes() == {}


def test_a_relative_path_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path, "m")
    looks = Looks(paths=(Path("m"),)).begin()
    (tmp_path / "m").rename(tmp_path / "away")
    for _ in range(3):
        found = looks.look()
        assert found.removed == ()
        assert list(found.unreadable) == [Path("m")]


def test_a_second_model_of_the_name(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    model(first, "m", versions=(1, 2))
    looks = Looks(first, second).begin()
    model(second, "m", "other")
    found = looks.look()
    assert "model appears in two or more repositories" in found.refused["m"]
    assert found.changes == found.removed == ()
    assert looks.look().refused == found.refused
    shutil.rmtree(second / "m")
    found = looks.look()
    assert not found.refused
    assert [change.unchanged for change in found.changes] == [{1, 2}]
    assert looks.changes() == {}


def test_a_refused_model_that_goes(tmp_path: Path) -> None:
    (tmp_path / "m").symlink_to(tmp_path / "nowhere")
    looks = Looks(tmp_path).begin()
    assert list(looks.look().refused) == ["m"]
    (tmp_path / "m").unlink()
    assert looks.look().removed == ()
    assert looks.look().removed == ("m",)


def test_a_model_that_moves_between_repositories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    folder = model(first, "m")
    looks = Looks(first, second).begin()
    folder.rename(second / "m")
    assert looks.settled() == {"m": set()}


def test_a_link_that_is_set_anew(tmp_path: Path) -> None:
    """As a Kubernetes volume changes: the folder is a link, and the files behind it are others at once."""
    repository = tmp_path / "models"
    repository.mkdir()
    for number in (1, 2):
        model(tmp_path / f"data{number}", "m", str(number))
    (repository / "m").symlink_to(tmp_path / "data1" / "m")
    looks = Looks(repository).begin()
    (tmp_path / "next").symlink_to(tmp_path / "data2" / "m")
    (tmp_path / "next").rename(repository / "m")
    assert looks.settled() == {"m": set()}


def test_versions_that_are_links_to_one_folder(tmp_path: Path) -> None:
    folder = model(tmp_path / "models", "m")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.onnx").write_text("a")
    for version in (2, 3):
        (folder / str(version)).symlink_to(tmp_path / "weights")
    looks = Looks(tmp_path / "models").begin()
    (tmp_path / "weights" / "model.onnx").write_text("b")
    assert looks.settled() == {"m": {1}}


def test_pipes_and_unreadable_files_do_not_hold_a_look_up(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    os.mkfifo(folder / "1" / "pipe")
    (folder / "1" / "nowhere").symlink_to(tmp_path / "gone")
    (folder / "1" / "circle").symlink_to(folder)
    (folder / "secret").write_text("a")
    (folder / "secret").chmod(0)
    looks = Looks(tmp_path).begin()
    assert looks.changes() == {}
    (folder / "1" / "nowhere").unlink()
    assert looks.settled() == {"m": set()}


def test_large_files_are_known_by_their_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MAX_READ", 3)
    folder = model(tmp_path, "m", "large")
    looks = Looks(tmp_path).begin()
    (folder / "1" / "model.onnx").touch()
    assert looks.settled() == {"m": set()}


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    source = ModelSource("m", folder, {1: folder / "1"})
    found = FileHashes()
    look = look_at(source)
    (folder / "1" / "model.onnx").write_text("longer")
    assert found.of(look) is None
    assert found.of(look_at(source)) is not None


def test_hashes_of_files_that_went_are_forgotten(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    source = ModelSource("m", folder, {1: folder / "1"})
    found = FileHashes()
    empty = len(kept(found))
    before = found.of(look_at(source))
    assert len(kept(found)) > empty
    found.keep([])
    assert len(kept(found)) == empty
    assert found.of(look_at(source)) == before


def test_a_single_file_has_one_version(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_text("a")
    looks = Looks(paths=(file,)).begin()
    file.touch()
    assert looks.settled() == {}
    file.write_text("b")
    assert looks.settled() == {"m": set()}


def test_no_version_is_as_before_when_nothing_is_known(tmp_path: Path) -> None:
    folder = model(tmp_path, "m")
    source = ModelSource("m", folder, {1: folder / "1"})
    content = FileHashes().of(look_at(source))
    assert content is not None
    assert unchanged_versions(None, content, source) == frozenset()
    assert unchanged_versions(content, content, source) == {1}


def test_a_model_with_too_many_files_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as what a link to some other place of the machine brings."""
    monkeypatch.setattr(fingerprint, "MAX_FILES", 8)
    folder = model(tmp_path, "m")
    looks = Looks(tmp_path).begin()
    for number in range(10):
        (folder / f"file{number}").touch()
    model(tmp_path, "n")
    assert looks.settled() == {"n": set()}
    found = looks.look()
    assert found.refused.keys() == {"m"}
    assert "holds more than 8 files and folders" in found.refused["m"]
    assert found.names == {"m", "n"}
    for number in range(10):
        (folder / f"file{number}").unlink()
    # Those two looks were the first that left it out.
    for _ in range(RESTS - 2):
        assert looks.look().refused.keys() == {"m"}
    assert looks.settled().keys() == {"m"}
